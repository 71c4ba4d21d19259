"""Medians of peers."""

from __future__ import annotations

import numpy as np
import pytest

from torchscale.features.trace.replay.own_times import medians_without_each


@pytest.mark.parametrize("count", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("shape", [(), (5,), (3, 4)])
def test_each_is_left_out(count: int, shape: tuple[int, ...]) -> None:
    chance = np.random.default_rng(count)
    values = chance.integers(0, 6, (count, *shape)).astype(np.float64)
    rows = np.array([0, count - 1])
    expected = [np.median(np.delete(values, row, axis=0), axis=0) for row in rows]
    assert np.array_equal(medians_without_each(values, rows), np.array(expected))
