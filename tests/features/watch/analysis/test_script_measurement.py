"""Which steps of a user's script count."""

from __future__ import annotations

import numpy as np
import pytest

from tests import factories
from torchscale.config.script import ScriptSteps
from torchscale.features.watch.analysis.script_measurement import (
    MOST_STEPS,
    ScriptMeasurement,
    Walls,
)
from torchscale.schema.cells.training import Measurement
from torchscale.schema.launch.steps import StopRule


def _rule(**changes: object) -> Measurement:
    rule = factories.cells()[0].measurement
    return rule.model_copy(
        update={
            "warmup_steps": 20,
            "warmup_seconds": 0.0,
            "min_steps": 100,
            "min_seconds": 0.0,
            "max_steps": 400,
            "max_seconds": 1000.0,
            **changes,
        }
    )


def _steps(count: int, seconds: float = 0.01, ranks: int = 2) -> Walls:
    """Rank 1 takes twice as long as rank 0 in every step."""
    return np.outer(np.arange(1, ranks + 1), np.full(count, seconds)).astype(np.float64)


def _measured(
    count: int, steps: ScriptSteps = "auto", stretch: int = 7, **rule: object
) -> ScriptMeasurement:
    measurement = ScriptMeasurement(_rule(**rule), steps)
    for _ in range(count // stretch):
        measurement.add(_steps(stretch))
    return measurement


@pytest.mark.parametrize("stretch", [1, 7, 700])
def test_even_steps_are_measured_until_the_interval_is_narrow(stretch: int) -> None:
    measurement = _measured(700, stretch=stretch)

    assert measurement.first == 20
    assert measurement.ended_by is StopRule.CONVERGED
    assert measurement.measured == 100
    assert measurement.step_seconds == pytest.approx(0.02)  # of the slower rank


def test_a_rank_has_its_own_times() -> None:
    measurement = _measured(700)

    assert measurement.batches_of(2)[0].total_seconds == pytest.approx(1.0)
    assert measurement.batches_of(2)[1].total_seconds == pytest.approx(2.0)
    assert measurement.warmup_of(1)[0].steps == 20
    assert measurement.warmup_of(1)[0].steady


def test_a_number_of_steps_is_taken_exactly() -> None:
    measurement = _measured(700, 123)

    assert measurement.ended_by is StopRule.MEASURE_STEPS
    assert measurement.measured == 123


def test_all_goes_on_to_the_end_of_the_program() -> None:
    measurement = _measured(7000, "all")
    measurement.end()

    assert measurement.ended_by is StopRule.PROGRAM
    assert 6900 < measurement.measured <= 6980
    assert len(measurement.batches_of(2)[0]) <= 400


def test_no_more_steps_are_measured_than_files_may_have() -> None:
    measurement = _measured(3 * MOST_STEPS, "all", stretch=1000)

    assert measurement.ended_by is StopRule.MAX_STEPS
    assert measurement.measured <= MOST_STEPS + MOST_STEPS // 100


def test_a_program_that_ends_in_the_warm_up_is_not_measured() -> None:
    measurement = _measured(14)
    measurement.end()

    assert measurement.ended_by is None


def test_what_a_program_that_ends_early_made_counts() -> None:
    measurement = _measured(63)
    measurement.end()

    assert measurement.ended_by is StopRule.PROGRAM
    assert measurement.measured == 40


def test_a_warm_up_that_never_settles_ends_at_its_cap() -> None:
    measurement = ScriptMeasurement(_rule(warmup_max_seconds=1.0), "auto")
    for number in range(100):
        measurement.add(_steps(1, 0.01 * 1.02**number))

    assert measurement.first is not None
    assert not measurement.warmup_of(1)[0].steady


def test_a_budget_shortens_the_measurement() -> None:
    measurement = ScriptMeasurement(_rule(), "auto")
    measurement.set_budget(1.5)
    measurement.add(_steps(700))

    assert measurement.ended_by is StopRule.BUDGET
