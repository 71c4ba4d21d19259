"""Rare long steps in one function of the program."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.watch.analysis.everyday.made import Job, line
from torchscale.features.watch.analysis.everyday.cause import EverydayCause
from torchscale.features.watch.analysis.everyday.pauses import find_pauses
from torchscale.features.watch.analysis.everyday.watched import WatchedSteps
from torchscale.schema.profiles.finding import FindingKind

LOG = line("train.py:40 log_metrics", "add_scalar")


def pauses(watched: WatchedSteps) -> list[EverydayCause]:
    return find_pauses(watched, np.zeros(len(watched.table)))


def test_a_function_of_one_rank_is_named_with_its_period() -> None:
    job = Job().add("log", 1, slice(25, None, 25), 0.15).at("log", LOG)
    (cause,) = pauses(job.watched())
    found = cause.finding

    assert (found.kind, found.rank, found.period_steps) == (FindingKind.STRAGGLER, 1, 25)
    assert found.cost_seconds == pytest.approx(0.15 / 25, rel=0.1)
    assert (
        "every 25 steps, at train.py:40 (log_metrics), which writes to TensorBoard" in found.summary
    )
    assert cause.lines[0][0] == LOG


def test_a_function_of_all_ranks_is_nobodys() -> None:
    job = Job().add("log", slice(None), slice(25, None, 25), 0.15).at("log", LOG)
    (cause,) = pauses(job.watched())

    assert (cause.finding.kind, cause.finding.rank) == (FindingKind.PERIODIC_WORK, None)
    assert cause.finding.summary.startswith("every rank takes 1")


def test_of_a_long_job_too() -> None:
    job = Job(2, 40_000).add("log", 1, slice(500, None, 500), 2.0).at("log", LOG)
    (cause,) = pauses(job.watched())

    assert (cause.finding.rank, cause.finding.period_steps) == (1, 500)


def test_pauses_of_a_function_at_no_regular_distance_have_no_period() -> None:
    job = Job().add("log", 1, [40, 55, 200, 330, 350, 500], 0.5).at("log", LOG)
    (cause,) = pauses(job.watched())

    assert (cause.finding.kind, cause.finding.period_steps) == (FindingKind.PAUSES, None)
    assert "in 6 steps" in cause.finding.summary


@pytest.mark.parametrize("part", ["data", "saving", "evaluating", "collection"])
def test_what_lies_in_a_column_of_its_own_is_no_pause(part: str) -> None:
    job = Job().add(part, 1, slice(25, None, 25), 0.15).at(part, LOG)

    assert pauses(job.watched()) == []


@pytest.mark.parametrize("called", ["backward", "all_reduce"])
def test_where_a_rank_waits_for_others_is_no_cause(called: str) -> None:
    job = Job().add("log", 1, slice(25, None, 25), 0.15)

    assert pauses(job.at("log", line("train.py:22 main", called)).watched()) == []


def test_what_another_rank_is_known_to_do_in_these_steps_is_no_pause() -> None:
    job = Job(2).add("log", 1, slice(25, None, 25), 0.15).at("log", LOG)
    job.add("saving", 0, slice(25, None, 25), 0.15)

    assert pauses(job.watched()) == []


def test_what_another_cause_explains_is_left_out() -> None:
    job = Job().add("log", 1, slice(25, None, 25), 0.15).at("log", LOG)

    assert find_pauses(job.watched(), job.parts["log"].max(axis=0)[10:]) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_busy_host_is_no_function_of_the_program(seed: int) -> None:
    assert pauses(Job(noise=0.2, seed=seed).watched()) == []
