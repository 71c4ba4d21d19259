"""All causes of a job together, beside what the rules say."""

from __future__ import annotations

import pytest

from tests.features.watch.analysis.everyday.made import MS, Job, line
from torchscale.features.watch.analysis.everyday.find import everyday_causes
from torchscale.features.watch.analysis.step_log import StepLog
from torchscale.features.watch.analysis.verdict import judge_job
from torchscale.schema.profiles.finding import FindingKind

K = FindingKind
ALL = slice(None)
LOOKS = {K.PAUSES, K.LOAD_IMBALANCE, K.SYNC_VARIANCE, K.STRAGGLER, K.INTERMITTENT_STRAGGLER}


def kinds(job: Job) -> tuple[list[tuple[FindingKind, int | None]], set[FindingKind]]:
    """Causes, and what of the rules' findings is left."""
    log = job.log()
    rules = [item.finding for item in judge_job(log).findings]
    causes, left = everyday_causes(log, job.evidence(), rules)
    return [(one.finding.kind, one.finding.rank) for one in causes], {one.kind for one in left}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("noise", [0.03, 0.15])
def test_a_healthy_job_has_no_everyday_cause(ranks: int, noise: float, seed: int) -> None:
    assert kinds(Job(ranks, noise=noise, seed=seed))[0] == []


@pytest.mark.parametrize(
    ("part", "row", "steps", "seconds", "expected"),
    [
        ("saving", 0, slice(40, None, 50), 0.2, (K.CHECKPOINTS, 0)),
        ("evaluating", 0, slice(99, None, 100), 1.0, (K.EVALUATIONS, 0)),
        ("collection", 1, slice(20, None, 30), 0.1, (K.GARBAGE_COLLECTION, 1)),
        ("data", 1, slice(7, None, 8), 0.1, (K.INPUT_PIPELINE, 1)),
        ("data", 1, [61], 9.0, (K.INPUT_PIPELINE, 1)),
        ("data", ALL, slice(7, None, 8), 0.1, (K.INPUT_PIPELINE, None)),
        ("saving", ALL, slice(40, None, 50), 0.2, (K.CHECKPOINTS, None)),
    ],
)
@pytest.mark.parametrize("ranks", [2, 4])
def test_a_cause_is_told_once_and_nothing_that_only_looks_like_it(
    part: str,
    row: int | slice,
    steps: object,
    seconds: float,
    expected: tuple[FindingKind, int | None],
    ranks: int,
) -> None:
    causes, left = kinds(Job(ranks).add(part, row, steps, seconds))

    assert causes == [expected]
    assert not left & LOOKS


def test_two_causes_are_two() -> None:
    job = Job().add("saving", 0, slice(40, None, 50), 0.2)
    job.add("log", 2, slice(25, None, 25), 0.15).at("log", line("train.py:40 log", "print"))
    causes, left = kinds(job)

    assert sorted(causes) == [(K.CHECKPOINTS, 0), (K.STRAGGLER, 2)]
    assert not left & LOOKS


def test_a_slow_rank_is_no_everyday_cause() -> None:
    causes, left = kinds(Job().add("work", 1, ALL, 8 * MS))

    assert causes == []
    assert K.STRAGGLER in left


def test_a_log_without_steps_has_none() -> None:
    assert everyday_causes(StepLog((0,))) == ([], [])
