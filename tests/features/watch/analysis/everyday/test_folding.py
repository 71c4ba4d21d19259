"""One cause, one finding."""

from __future__ import annotations

import numpy as np
import pytest

from tests.features.watch.analysis.everyday.made import MS, Job
from torchscale.features.watch.analysis.everyday.cause import EverydayCause
from torchscale.features.watch.analysis.everyday.checkpoints import find_checkpoints
from torchscale.features.watch.analysis.everyday.folding import fold
from torchscale.features.watch.analysis.everyday.watched import WatchedSteps
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind

K = FindingKind
SAVING = Job().add("saving", 0, slice(40, None, 50), 0.2)


def finding(
    kind: FindingKind, watched: WatchedSteps, cost: float, rank: int | None = None
) -> Finding:
    return Finding(
        kind=kind,
        rank=rank,
        cost_percent=cost / watched.step_seconds * 100,
        cost_seconds=cost,
        confidence=Confidence.HIGH,
        summary=kind.label,
        advice="",
    )


def folded(
    job: Job, kind: FindingKind, cost: float, rank: int | None = None
) -> tuple[list[EverydayCause], list[Finding]]:
    watched = job.watched()
    causes = find_checkpoints(watched)
    return fold(causes, [finding(kind, watched, cost, rank)], watched)


@pytest.mark.parametrize(
    ("kind", "rank"), [(K.PAUSES, 0), (K.PAUSES, None), (K.STRAGGLER, 0), (K.LOAD_IMBALANCE, None)]
)
def test_checkpoints_explain_what_lies_in_their_steps(kind: FindingKind, rank: int | None) -> None:
    causes, left = folded(SAVING, kind, 4 * MS, rank)

    assert left == []
    (cause,) = causes
    if kind is not K.LOAD_IMBALANCE:  # which ranks that take no turns do not have at all
        assert f"explains {kind.label.lower()} of 4.00 ms a step" in cause.finding.evidence[-1]


@pytest.mark.parametrize(
    ("kind", "rank"), [(K.PAUSES, 1), (K.STRAGGLER, 2), (K.SLOW_LINK, None), (K.HOST_BOUND, 0)]
)
def test_what_other_ranks_do_and_other_kinds_stay(kind: FindingKind, rank: int | None) -> None:
    causes, left = folded(SAVING, kind, 4 * MS, rank)

    assert [one.kind for one in left] == [kind]
    assert not any("explains" in text for text in causes[0].finding.evidence)


def test_what_lies_mostly_in_other_steps_stays() -> None:
    job = Job().add("saving", 0, slice(40, None, 50), 0.2).add("work", 0, slice(None), 15 * MS)
    _, left = folded(job, K.STRAGGLER, 15 * MS, 0)

    assert [one.kind for one in left] == [K.STRAGGLER]


@pytest.mark.parametrize(
    ("period", "rank", "stays"), [(51, 0, False), (50, 1, True), (25, 0, True)]
)
def test_what_comes_back_in_as_many_steps_at_the_same_rank_is_the_same(
    period: int, rank: int, stays: bool
) -> None:
    """However much else ranks wait for."""
    job = (
        Job().add("saving", 0, slice(40, None, 50), 0.2).add("work", 0, slice(0, None, 3), 60 * MS)
    )
    watched = job.watched()
    periodic = finding(K.STRAGGLER, watched, 4 * MS, rank)
    periodic = periodic.model_copy(update={"period_steps": period})
    _, left = fold(find_checkpoints(watched), [periodic], watched)

    assert bool(left) is stays


def test_ranks_that_take_turns_beside_checkpoints_are_told() -> None:
    job = Job(2).add("saving", 0, slice(40, None, 50), 0.2)
    job.add("work", 0, slice(0, None, 2), 15 * MS).add("work", 1, slice(1, None, 2), 15 * MS)
    _, left = folded(job, K.LOAD_IMBALANCE, 7 * MS)

    assert [one.kind for one in left] == [K.LOAD_IMBALANCE]


def test_a_cause_is_not_explained_by_what_only_looks_like_one() -> None:
    watched = SAVING.watched()
    causes, left = fold(find_checkpoints(watched), [finding(K.PAUSES, watched, 4 * MS, 0)], watched)

    assert [cause.finding.kind for cause in causes] == [K.CHECKPOINTS]
    assert left == []


def test_an_evaluation_explains_the_checkpoint_in_it() -> None:
    job = Job().add("evaluating", 0, slice(99, None, 100), 2.0)
    watched = job.watched()
    whole = job.parts["evaluating"].max(axis=0)[10:]
    causes = [
        EverydayCause(finding(K.EVALUATIONS, watched, float(whole.mean()), 0), whole),
        EverydayCause(finding(K.CHECKPOINTS, watched, float(whole.mean()) / 5, 0), whole / 5),
    ]
    left, _ = fold(causes, [], watched)

    assert [cause.finding.kind for cause in left] == [K.EVALUATIONS]
    assert "explains checkpoints of" in left[0].finding.evidence[-1]
    assert np.array_equal(left[0].by_column, whole)
