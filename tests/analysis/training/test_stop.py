from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchscale.analysis.stats.estimate import relative_half_width
from torchscale.analysis.training.stop import MeasurementRule, WarmupRule
from torchscale.config.sections.benchmark import PRESETS
from torchscale.schema.cells.training import Measurement
from torchscale.schema.launch.steps import Batch, StopRule


def measurement(**changes: Any) -> Measurement:
    return Measurement(**{"preset": "standard", **PRESETS["standard"], **changes})


def run(rule: MeasurementRule, seconds_per_step: Any) -> tuple[list[Batch], StopRule]:
    """Feed batches until the rule ends it; ``seconds_per_step`` is called for each batch."""
    batches: list[Batch] = []
    while True:
        steps = rule.batch_steps(len(batches))
        batches.append(Batch(steps=steps, seconds=steps * seconds_per_step()))
        ended = rule.ended_by(batches)
        if ended is not None:
            return batches, ended
        assert len(batches) < 10_000


def rule(
    step_seconds: float, *, budget: float | None = None, epoch: int = 100, **changes: Any
) -> MeasurementRule:
    return MeasurementRule(
        measurement(**changes), step_seconds=step_seconds, steps_per_epoch=epoch, budget_left=budget
    )


def test_a_calm_series_ends_at_the_floors() -> None:
    batches, ended = run(rule(0.2), lambda: 0.2)
    assert ended is StopRule.CONVERGED
    assert sum(batch.steps for batch in batches) == 100
    assert sum(batch.seconds for batch in batches) == pytest.approx(20.0)


def test_the_floor_in_seconds_counts_too() -> None:
    batches, ended = run(rule(0.05), lambda: 0.05)
    assert ended is StopRule.CONVERGED
    assert sum(batch.steps for batch in batches) == 200


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0.001, StopRule.MAX_STEPS), (0.05, StopRule.MAX_STEPS), (2.0, StopRule.MAX_SECONDS)],
)
def test_a_wild_series_ends_at_a_cap_and_never_beyond_it(step: float, expected: StopRule) -> None:
    values = iter([step * factor for factor in (0.5, 1.5) * 5000])
    batches, ended = run(rule(step), lambda: next(values))
    assert ended is expected
    assert sum(batch.steps for batch in batches) <= 400
    assert sum(batch.seconds for batch in batches) <= 121


def test_a_cap_wins_over_a_floor() -> None:
    batches, ended = run(rule(0.001), lambda: 0.001)
    assert ended is StopRule.MAX_STEPS
    assert sum(batch.seconds for batch in batches) < 10


def test_a_step_of_eight_seconds_gets_what_fits() -> None:
    batches, ended = run(rule(8.0), lambda: 8.0)
    assert ended is StopRule.MAX_SECONDS
    assert len(batches) == 15
    assert {batch.steps for batch in batches} == {1}


def test_there_are_ten_batches_wherever_steps_allow() -> None:
    for step in (0.0005, 0.004, 0.03, 0.2, 0.9, 7.0):
        batches, _ = run(rule(step), lambda step=step: step)
        assert len(batches) >= 10
        assert len({batch.steps for batch in batches}) == 1


@pytest.mark.parametrize(
    ("steps", "batches"), [(100, 10), (70, 10), (75, 10), (101, 10), (997, 10), (7, 7), (1, 1)]
)
def test_a_fixed_number_of_steps_is_met_exactly_in_equal_batches(steps: int, batches: int) -> None:
    """Also a prime number: batches of one step each would time the start of every step instead of a
    stream of them."""
    found, ended = run(rule(0.1, measure_steps=steps), lambda: 0.1)
    assert ended is StopRule.MEASURE_STEPS
    assert sum(batch.steps for batch in found) == steps
    assert len(found) == batches
    assert max(batch.steps for batch in found) - min(batch.steps for batch in found) <= 1


def test_a_fixed_time() -> None:
    batches, ended = run(rule(0.1, measure_seconds=5.0), lambda: 0.1)
    assert ended is StopRule.MEASURE_SECONDS
    assert 5.0 <= sum(batch.seconds for batch in batches) <= 5.6


@pytest.mark.parametrize(("epochs", "epoch"), [(1, 12), (2, 12), (3, 97), (20, 5), (2, 2083)])
def test_epochs_end_where_an_epoch_ends(epochs: int, epoch: int) -> None:
    batches, ended = run(rule(0.1, epochs=epochs, epoch=epoch), lambda: 0.1)
    assert ended is StopRule.EPOCHS
    ends = set(itertools.accumulate(batch.steps for batch in batches))
    assert max(ends) == epochs * epoch
    assert {epoch * (number + 1) for number in range(epochs)} <= ends
    assert len(batches) >= 10


def test_a_budget_ends_every_mode_in_time() -> None:
    for changes in ({}, {"measure_steps": 1000}, {"measure_seconds": 60.0}, {"epochs": 9}):
        batches, ended = run(rule(0.5, budget=6.0, **changes), lambda: 0.5)
        assert ended is StopRule.BUDGET, changes
        assert sum(batch.seconds for batch in batches) <= 6.0 + 0.5
        assert len(batches) >= 6


def test_without_any_budget_left_a_single_batch_of_a_step_is_measured() -> None:
    for changes in ({}, {"measure_steps": 1000}, {"measure_seconds": 60.0}, {"epochs": 9}):
        batches, ended = run(rule(0.5, budget=0.0, **changes), lambda: 0.5)
        assert ended is StopRule.BUDGET
        assert [batch.steps for batch in batches] == [1]


@pytest.mark.parametrize(
    "changes",
    [
        {"measure_steps": 1000},
        {"measure_seconds": 3600.0},
        {"epochs": 1},
        {"max_seconds": 10_000.0, "max_steps": 10_000, "min_seconds": 5_000.0},
    ],
)
@pytest.mark.parametrize("step", [0.5, 8.0, 40.0])
def test_no_batch_is_so_long_that_it_looks_like_a_hang(
    changes: dict[str, Any], step: float
) -> None:
    """Ranks report between batches, and the launcher ends what is silent for minutes."""
    slow = rule(step, epoch=1562, **changes)
    assert all(slow.batch_steps(done) * step <= max(step, 15.0 + step) for done in range(1562))


def test_a_series_slower_than_warm_up_still_keeps_to_the_caps() -> None:
    batches, ended = run(rule(0.1), lambda: 2.0)
    assert ended is StopRule.MAX_SECONDS
    assert sum(batch.seconds for batch in batches) <= 120.0


@given(
    step=st.floats(1e-5, 100.0),
    slowdown=st.floats(0.2, 5.0),
    min_steps=st.integers(1, 500),
    min_seconds=st.floats(0.1, 100.0),
    max_steps=st.integers(1, 1000),
    max_seconds=st.floats(0.1, 300.0),
)
def test_the_caps_hold_for_any_settings(
    step: float,
    slowdown: float,
    min_steps: int,
    min_seconds: float,
    max_steps: int,
    max_seconds: float,
) -> None:
    chosen = rule(
        step,
        min_steps=min_steps,
        min_seconds=min_seconds,
        max_steps=max_steps,
        max_seconds=max_seconds,
    )
    batches, ended = run(chosen, lambda: step * slowdown)
    assert len({batch.steps for batch in batches}) == 1
    assert sum(batch.steps for batch in batches) <= max_steps
    if len(batches) > 1:
        assert sum(batch.seconds for batch in batches) <= max_seconds * (1 + 1e-9)
    if ended is StopRule.CONVERGED:
        assert len(batches) >= 10


@pytest.mark.parametrize("noise", [0.005, 0.015, 0.02])
def test_the_interval_at_which_it_stops_holds_what_it_promises(noise: float) -> None:
    """Stopping as soon as an interval is narrow favours lucky series; coverage must still be near
    95 %."""
    random = np.random.default_rng(3)
    inside = 0
    for _ in range(400):
        batches, ended = run(rule(0.1), lambda: float(0.1 * random.normal(1.0, noise)))
        assert ended is StopRule.CONVERGED
        means = [batch.seconds / batch.steps for batch in batches]
        half_width = relative_half_width(means)
        assert half_width is not None
        assert half_width <= 0.01
        mean = float(np.mean(means))
        inside += abs(mean - 0.1) <= half_width * mean
    assert 0.90 <= inside / 400 <= 0.98


def warm(rule_: WarmupRule, seconds_per_step: Any) -> list[Batch]:
    batches: list[Batch] = []
    while not rule_.is_over(batches):
        batches.append(
            Batch(steps=rule_.batch_steps, seconds=rule_.batch_steps * seconds_per_step())
        )
        assert len(batches) < 10_000
    return batches


def test_warm_up_takes_its_steps_and_seconds_and_then_settles() -> None:
    rule_ = WarmupRule(measurement(), step_seconds=0.1, budget_left=None)
    falling = iter([0.3, 0.3, 0.2, 0.2, 0.15, 0.12, 0.11] + [0.1] * 100)
    batches = warm(rule_, lambda: next(falling))
    assert rule_.is_steady(batches)
    assert sum(batch.seconds for batch in batches) >= 10
    assert sum(batch.steps for batch in batches) >= 20


def test_warm_up_that_never_settles_ends_at_its_cap() -> None:
    rule_ = WarmupRule(measurement(warmup_max_seconds=30.0), step_seconds=0.1, budget_left=None)
    growing = iter([0.1 * 1.1**step for step in range(1000)])
    batches = warm(rule_, lambda: next(growing))
    assert not rule_.is_steady(batches)
    assert sum(batch.seconds for batch in batches) <= 31


def test_slow_steps_warm_up_in_shorter_batches() -> None:
    assert WarmupRule(measurement(), step_seconds=6.0, budget_left=None).batch_steps == 2
    assert WarmupRule(measurement(), step_seconds=60.0, budget_left=10.0).batch_steps == 1
    assert (
        WarmupRule(
            measurement(warmup_max_seconds=9e9), step_seconds=6.0, budget_left=None
        ).batch_steps
        == 2
    )
    assert WarmupRule(measurement(), step_seconds=0.0, budget_left=0.0).batch_steps == 1


def test_batches_hold_whole_cycles_of_samples_where_one_fits() -> None:
    """With cycles of 10 steps: 10 of the 10 that 0.1 s suggest, 20 of 25 that fit; of 6 that fit all,
    since not one cycle does."""
    assert WarmupRule(measurement(), step_seconds=0.1, budget_left=None, cycle=10).batch_steps == 10
    assert WarmupRule(measurement(), step_seconds=2.0, budget_left=None, cycle=10).batch_steps == 6
    of_time = measurement(measure_seconds=25.0)
    free = MeasurementRule(of_time, step_seconds=0.1, steps_per_epoch=1, budget_left=None, cycle=10)
    assert free.batch_steps(0) == 20
    odd = measurement(min_steps=130)
    assert (
        MeasurementRule(
            odd, step_seconds=0.1, steps_per_epoch=1, budget_left=None, cycle=10
        ).batch_steps(0)
        == 20
    )
    plain = MeasurementRule(odd, step_seconds=0.1, steps_per_epoch=1, budget_left=None)
    assert plain.batch_steps(0) == 13


def test_warm_up_leaves_most_of_a_budget_to_the_measurement() -> None:
    rule_ = WarmupRule(measurement(), step_seconds=0.1, budget_left=20.0)
    batches = warm(rule_, lambda: 0.1)
    assert sum(batch.seconds for batch in batches) <= 0.4 * 20.0
