from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from torchscale.schema.cell import Measurement
from torchscale.schema.config import PRESETS
from torchscale.schema.record import Batch, StopRule
from torchscale.worker.measure.stop import MeasurementRule, WarmupRule


def measurement(**changes: Any) -> Measurement:
    return Measurement(**{"preset": "standard", **PRESETS["standard"], **changes})


def run(rule: MeasurementRule, seconds_per_step: Any) -> tuple[list[Batch], StopRule]:
    """Feed batches until the rule ends it; ``seconds_per_step`` is called for each batch."""
    batches: list[Batch] = []
    while True:
        batches.append(Batch(steps=rule.batch_steps, seconds=rule.batch_steps * seconds_per_step()))
        ended = rule.ended_by(batches)
        if ended is not None:
            return batches, ended
        assert len(batches) < 10_000


def rule(step_seconds: float, *, budget: float | None = None, epoch: int = 100, **changes: Any) -> MeasurementRule:
    return MeasurementRule(measurement(**changes), step_seconds=step_seconds, steps_per_epoch=epoch, budget_left=budget)


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
    ("step", "expected"), [(0.001, StopRule.MAX_STEPS), (0.05, StopRule.MAX_STEPS), (2.0, StopRule.MAX_SECONDS)]
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


@pytest.mark.parametrize(("steps", "batches"), [(100, 10), (70, 10), (75, 15), (101, 101), (7, 7), (1, 1)])
def test_a_fixed_number_of_steps_is_met_exactly_in_equal_batches(steps: int, batches: int) -> None:
    found, ended = run(rule(0.1, measure_steps=steps), lambda: 0.1)
    assert ended is StopRule.MEASURE_STEPS
    assert sum(batch.steps for batch in found) == steps
    assert len(found) == batches


def test_a_fixed_time() -> None:
    batches, ended = run(rule(0.1, measure_seconds=5.0), lambda: 0.1)
    assert ended is StopRule.MEASURE_SECONDS
    assert 5.0 <= sum(batch.seconds for batch in batches) <= 5.6


@pytest.mark.parametrize(("epochs", "epoch"), [(1, 12), (2, 12), (3, 97), (20, 5)])
def test_epochs_end_where_an_epoch_ends(epochs: int, epoch: int) -> None:
    bounded = rule(0.1, epochs=epochs, epoch=epoch)
    batches, ended = run(bounded, lambda: 0.1)
    assert ended is StopRule.EPOCHS
    assert sum(batch.steps for batch in batches) == epochs * epoch
    assert epoch % bounded.batch_steps == 0


def test_a_budget_ends_every_mode_in_time() -> None:
    for changes in ({}, {"measure_steps": 1000}, {"measure_seconds": 60.0}, {"epochs": 9}):
        batches, ended = run(rule(0.5, budget=6.0, **changes), lambda: 0.5)
        assert ended is StopRule.BUDGET, changes
        assert len(batches) == 1 or sum(batch.seconds for batch in batches) <= 6.0


def test_the_interval_at_which_it_stops_holds_what_it_promises() -> None:
    """Stopping as soon as an interval is narrow favours lucky series; coverage must still be near 95 %."""
    random = np.random.default_rng(3)
    inside = converged = 0
    for _ in range(400):
        batches, ended = run(rule(0.1), lambda: float(random.normal(0.1, 0.002)))
        if ended is StopRule.CONVERGED:
            converged += 1
            mean = sum(batch.seconds for batch in batches) / sum(batch.steps for batch in batches)
            inside += abs(mean - 0.1) <= 0.01 * 0.1 * 1.5
    assert converged > 300
    assert inside / converged > 0.95


def warm(rule_: WarmupRule, seconds_per_step: Any) -> list[Batch]:
    batches: list[Batch] = []
    while not rule_.is_over(batches):
        batches.append(Batch(steps=rule_.batch_steps, seconds=rule_.batch_steps * seconds_per_step()))
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
