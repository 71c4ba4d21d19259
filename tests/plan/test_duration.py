from __future__ import annotations

import pytest

from tests.factories import cells, experiment
from torchscale.plan.duration import sweep_seconds
from torchscale.plan.kinds import plan_kind
from torchscale.schema.cells.kinds import AnyCell


def test_a_sweep_lies_between_the_floors_and_the_caps_of_its_rule() -> None:
    training = cells(gpu_counts=[1])
    low, high = sweep_seconds(training, 1, None)
    assert low == pytest.approx(4 + 10 + 10)  # start, warm-up, floor of the measurement
    assert high == pytest.approx(30 + 120 + 120)
    assert sweep_seconds(training, 3, None) == pytest.approx((3 * low, 3 * high))
    assert sweep_seconds(training, 1, 20.0) == (20.0, 20.0)


def test_fixed_seconds_and_other_kinds() -> None:
    fixed = cells(gpu_counts=[1], benchmark={"measure_seconds": 5.0, "warmup_seconds": 1.0, "warmup_max_seconds": 2.0})
    assert sweep_seconds(fixed, 1, None) == pytest.approx((4 + 6, 30 + 7))
    config = experiment(gpu_counts=[2])
    others: list[AnyCell] = [
        *plan_kind("collectives").make_cells(config, "cpu", [2]),
        *plan_kind("hardware").make_cells(config, "cpu", [2]),
        *plan_kind("memory").make_cells(config, "cpu", [2]),
    ]
    for cell in others:
        low, high = sweep_seconds([cell], 1, None)
        assert 0 < low < high
