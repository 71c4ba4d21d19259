"""Rounds of collectives, where no optimizer of torch steps."""

from __future__ import annotations

import numpy as np
import pytest

from torchscale.analysis.exchanges.events import Calls
from torchscale.features.watch.analysis.rounds import find_round

MS = 1_000_000


def _calls(kinds: list[int], gaps: list[float], rounds: int) -> Calls:
    """Rounds of collectives of these kinds, each ``gaps`` milliseconds after the one before."""
    count = len(kinds) * rounds
    jitter = np.random.default_rng(0).normal(1, 0.05, count)
    time = np.cumsum(np.tile(gaps, rounds) * jitter * MS).astype(np.int64)
    return Calls(
        time,
        np.arange(1, count + 1),
        np.zeros(count, np.int64),
        np.tile(np.array(kinds, np.int64), rounds),
    )


def test_a_repeated_sequence_is_a_round() -> None:
    calls = _calls([0, 1, 2], [9, 1, 1], 60)
    found = find_round(calls)

    assert found is not None
    assert found.per_round == 3
    assert len(found.edges(calls)) == pytest.approx(60, abs=1)


def test_equal_layers_of_a_step_are_no_round_by_themselves() -> None:
    calls = _calls([0, 1] * 6, [12, *[0.3] * 11], 50)
    found = find_round(calls)

    assert found is not None
    assert found.per_round == 12


def test_a_loop_of_one_collective_has_rounds_of_one() -> None:
    found = find_round(_calls([0], [5], 100))

    assert found is not None
    assert found.per_round == 1


def test_what_never_repeats_and_what_is_short_has_no_rounds() -> None:
    kinds = np.random.default_rng(1).integers(0, 50, 400).tolist()

    assert find_round(_calls(kinds, [1.0] * 400, 1)) is None
    assert find_round(_calls([0, 1], [1, 1], 10)) is None


def test_the_collectives_at_the_end_of_a_program_do_not_hide_its_rounds() -> None:
    calls = _calls([0, 1, 2], [9, 1, 1], 60)
    calls.what[-2:] = 7

    found = find_round(calls)
    assert found is not None
    assert found.per_round == 3
