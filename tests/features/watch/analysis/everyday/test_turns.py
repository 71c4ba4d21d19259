"""Ranks that take turns, and ranks that do not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.watch.analysis.everyday.made import MS, Job
from torchscale.features.watch.analysis.everyday.turns import are_late_in_turn


def late_in_turn(job: Job, *parts: str) -> bool:
    watched = job.watched()
    explained = np.zeros(len(watched.table))
    for part in parts:
        explained += job.parts[part].max(axis=0)[watched.first :]
    return are_late_in_turn(watched, explained)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_that_are_late_one_after_the_other_take_turns(ranks: int) -> None:
    job = Job(ranks)
    for row in range(ranks):
        job.add("work", row, slice(row, None, ranks), 15 * MS)

    assert late_in_turn(job)


@pytest.mark.parametrize("steps", [slice(None), slice(0, None, 3)])
def test_one_late_rank_takes_none(steps: slice) -> None:
    assert not late_in_turn(Job().add("work", 1, steps, 15 * MS))


def test_checkpoints_of_one_rank_and_noise_of_the_others_are_no_turns() -> None:
    saving = Job(2).add("saving", 0, slice(20, None, 30), 0.3)
    assert not late_in_turn(saving, "saving")

    saving.add("work", 0, slice(0, None, 2), 15 * MS).add("work", 1, slice(1, None, 2), 15 * MS)
    assert late_in_turn(saving, "saving")


def test_turns_of_a_long_job_are_seen_in_its_last_steps() -> None:
    job = Job(2, 40_000)
    job.add("work", 0, slice(0, None, 2), 15 * MS).add("work", 1, slice(1, None, 2), 15 * MS)

    assert job.log().per_column > 1
    assert late_in_turn(job)
