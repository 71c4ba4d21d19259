from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.factories import cells, experiment, machine
from torchscale.config.choices import Rerun
from torchscale.config.experiment import Experiment
from torchscale.plan import duration
from torchscale.plan.duration import (
    CellProgress,
    DurationEstimate,
    LaunchEnd,
    cell_progress,
    estimate_seconds,
)
from torchscale.plan.expand import Plan, make_plan
from torchscale.plan.kinds import plan_kind
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.state import State

OK, CRASHED, INTERRUPTED = (
    LaunchEnd(state, 7.0) for state in (State.OK, State.CRASHED, State.INTERRUPTED)
)


def planned(config: Experiment) -> Plan:
    return make_plan(config, machine())


def estimate(config: Experiment, repeats: int = 1) -> DurationEstimate:
    """Of a sweep of which nothing is done."""
    plan = planned(config)
    progress = [cell_progress(cell, {}, repeats) for cell in plan.to_run]
    return estimate_seconds(progress, config.benchmark, config.launch.timeout_seconds, plan)


def test_a_sweep_lies_between_the_floors_and_the_caps_of_its_rule() -> None:
    once = estimate(experiment(gpu_counts=[1]))
    assert once.low == pytest.approx(4 + 10 + 10)  # start, warm-up, floor of the measurement
    assert once.high == pytest.approx(30 + 120 + 120)
    thrice = estimate(experiment(gpu_counts=[1]), repeats=3)
    assert (thrice.low, thrice.high) == pytest.approx((3 * once.low, 3 * once.high))
    budget = estimate(experiment(gpu_counts=[1], benchmark={"cell_seconds": 20.0}))
    assert (budget.low, budget.high) == (20.0, 20.0)


def test_fixed_seconds_and_other_kinds() -> None:
    settings = {"measure_seconds": 5.0, "warmup_seconds": 1.0, "warmup_max_seconds": 2.0}
    fixed = estimate(experiment(gpu_counts=[1], benchmark=settings))
    assert (fixed.low, fixed.high) == pytest.approx((4 + 6, 30 + 7))
    config = experiment(gpu_counts=[2])
    others: list[AnyCell] = [
        *plan_kind("collectives").make_cells(config, "cpu", [2]),
        *plan_kind("hardware").make_cells(config, "cpu", [2]),
        *plan_kind("memory").make_cells(config, "cpu", [2]),
        *plan_kind("checkpoint").make_cells(config, "cpu", [2]),
    ]
    for cell in others:
        found = estimate_seconds(
            [CellProgress(cell, 0, 1)], config.benchmark, 1800.0, planned(config)
        )
        assert 0 < found.low < found.high


def test_a_step_that_is_longer_than_the_measurement_is_told_and_bound_by_the_timeout() -> None:
    """BERT-large at batch 1024: 3 × 368 GFLOP × 1,024 at 320 GFLOP/s are 59 minutes."""
    config = experiment(
        models="bert-large", batch_sizes=[1024], gpu_counts=[1], launch={"threads_per_rank": 1}
    )
    found = estimate(config)
    (step,) = found.long_steps.values()
    assert step == pytest.approx(3 * 368_085_827_584 * 1024 / 320e9)
    assert (found.low, found.high) == (1800.0, 1800.0)


@pytest.mark.parametrize(
    ("step", "bounds", "is_long"),
    [
        (1.0, (10.0, 100.0), False),
        (20.0, (40.0, 100.0), False),
        (50.0, (100.0, 100.0), False),
        (51.0, (102.0, 1800.0), True),
        (1000.0, (1800.0, 1800.0), True),
    ],
)
def test_a_launch_takes_a_step_of_warm_up_and_one_of_measurement_at_least(
    monkeypatch: pytest.MonkeyPatch, step: float, bounds: tuple[float, float], is_long: bool
) -> None:
    """Two steps that just fit into what the rule allows are no reason to warn of long steps; two
    that do not make the caps of the rule meaningless, so that only the timeout bounds the launch.
    """
    kind = SimpleNamespace(
        expected_seconds=lambda cell: (10.0, 100.0), least_step_seconds=lambda cell, peaks: step
    )
    monkeypatch.setattr(duration, "plan_kind", lambda name: kind)
    found = estimate(experiment(gpu_counts=[1]))
    assert (found.low, found.high) == bounds
    assert bool(found.long_steps) is is_long


def test_launches_that_were_measured_before_say_how_long_the_others_take() -> None:
    config = experiment(gpu_counts=[1])
    (cell,) = planned(config).to_run
    progress = cell_progress(cell, {0: OK}, 3)
    assert (progress.done, progress.left, progress.seconds) == (1, 2, 7.0)
    found = estimate_seconds([progress], config.benchmark, 1800.0, planned(config))
    assert (found.low, found.high, found.from_earlier) == (14.0, 14.0, 2)


@pytest.mark.parametrize(
    ("rerun", "done"),
    [(None, 2), (Rerun.FAILED, 1), (Rerun.ALL, 0)],
)
def test_what_is_measured_again_is_left(rerun: Rerun | None, done: int) -> None:
    """An interrupted launch always runs again; a launch beyond the repeats does not count."""
    cell = cells(gpu_counts=[1])[0]
    progress = cell_progress(cell, {0: OK, 1: CRASHED, 2: INTERRUPTED, 7: OK}, 4, rerun)
    assert (progress.done, progress.left) == (done, 4 - done)
