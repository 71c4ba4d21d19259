"""Steps at which a level changed."""

from __future__ import annotations

import numpy as np

from torchscale.analysis.exchanges.steps import JobSteps, table_of
from torchscale.features.watch.analysis.level_changes import LEAST_STRETCH, level_changes
from torchscale.features.watch.analysis.step_log import StepLog


def changes(table: JobSteps) -> tuple[int, ...]:
    log = StepLog((0, 1))
    log.add(table)
    return level_changes(table, log)


def job(rank_since: int, all_since: int, steps: int = 480) -> JobSteps:
    """20 ms a step of two ranks: rank 0 takes 5 ms longer from a step on, and all wait 4 ms longer
    from another one on."""
    rng = np.random.default_rng(3)
    step = np.arange(steps)
    own = 0.015 * rng.lognormal(0, 0.02, (2, steps))
    own[0] += 0.005 * (step >= rank_since)
    wall = np.repeat(own.max(axis=0)[None] + 0.005 + 0.004 * (step >= all_since), 2, axis=0)
    return table_of(wall, {"own": own, "quiet": own})


def test_of_changes_that_leave_no_stretch_to_judge_the_largest_counts() -> None:
    assert len(changes(job(297, 297 + LEAST_STRETCH - 5))) == 1
    (found,) = changes(job(297, 297 - LEAST_STRETCH + 5))
    assert abs(found - 297) <= 5


def test_changes_that_are_apart_are_two() -> None:
    first, second = changes(job(297, 150))
    assert abs(first - 150) <= 10
    assert abs(second - 297) <= 5
