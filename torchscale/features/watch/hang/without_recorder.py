"""Where no recorder shows a collective: Python stacks, and which ranks compute, say who waits for
whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchscale.features.watch.hang.absence import describe_absence
from torchscale.features.watch.hang.activity import Activity
from torchscale.features.watch.hang.job import Job, seems_to_wait, wait_of
from torchscale.features.watch.hang.stacks import (
    has_left_loop,
    is_ending,
    is_in_backward,
    is_loading,
    purpose,
)
from torchscale.features.watch.hang.verdict import collective_label, make_verdict
from torchscale.schema.launch.hang import (
    Autopsy,
    HangCause,
    StackFrame,
    StuckCollective,
)
from torchscale.schema.profiles.finding import Confidence
from torchscale.util.optional import sole
from torchscale.util.text import agreeing, ranks_label

_BACKWARD = "backward pass"
_LEFT_BECAUSE = "may have had fewer batches, returned early or caught an exception"
"""Reasons of ranks that have left a loop before others."""


def explain_by_stacks(job: Job) -> Autopsy | None:
    """Where no recorder shows a collective that does not complete, the Python stacks say who waits
    for others."""
    if job.stalls:
        return None
    known = {rank: evidence.frames for rank, evidence in job.ranks.items() if evidence.frames}
    waiting = {rank: name for rank, frames in known.items() if (name := wait_of(frames))}
    in_backward = dict.fromkeys(_wait_in_backward(job), _BACKWARD)
    explicit = bool(waiting) and all(
        job.ranks[rank].activity is Activity.IDLE for rank in in_backward
    )
    waiting.update(in_backward)
    if len(waiting) == len(job.ranks):
        return _apart(job, waiting)
    if not waiting:
        return _without_collectives(job, known)
    operations = list(waiting.values())
    operation = max(operations, key=operations.count)
    inside = next(rank for rank in sorted(waiting) if waiting[rank] == operation)
    collective = StuckCollective(operation=operation, purpose=purpose(operation, known[inside]))
    others = tuple(sorted(set(job.ranks) - set(waiting)))
    are_known = set(others) <= set(known)
    said = ""
    if are_known:
        said = agreeing(others, "is not in it", "are not in it")
    cause, text = describe_absence(job, others, said)
    confidence = Confidence.LOW
    if (explicit or job.busy == others) and len(others) <= len(waiting) and are_known:
        confidence = Confidence.MEDIUM
    summary = f"{collective_label(collective)}: {text}"
    return make_verdict(job, cause, others, confidence, summary, collective=collective)


def _wait_in_backward(job: Job) -> list[int]:
    """Ranks in the backward pass alone that may wait there: DDP waits for gradients in C++, so that
    the stack shows the pass, in which a rank may compute as well."""
    inside = [rank for rank, evidence in job.ranks.items() if is_in_backward(evidence.frames)]
    unnamed = [rank for rank in inside if not wait_of(job.ranks[rank].frames)]
    return [rank for rank in unnamed if job.ranks[rank].activity is not Activity.BUSY]


def _apart(job: Job, waiting: Mapping[int, str]) -> Autopsy | None:
    """All ranks wait, but not in the same place. Those that have left for good the loop in which
    the others are do not come back to it; they are named unless they are the most. Else nothing
    says who is wrong."""
    sides: dict[tuple[str, str], list[int]] = {}
    for rank, operation in sorted(waiting.items()):
        sides.setdefault((operation, job.where(rank)), []).append(rank)
    if len(sides) != 2:
        return None
    first, second = sides.values()
    for gone, inside in ((first, second), (second, first)):
        if _have_left(job, gone, inside):
            return _left_the_loop(job, waiting, gone, inside)
    return None


def _left_the_loop(
    job: Job, waiting: Mapping[int, str], gone: Sequence[int], inside: Sequence[int]
) -> Autopsy:
    """The verdict on ranks that have left a loop while others wait in it; the smaller part is
    named."""
    have = agreeing(gone, "has", "have")
    if len(gone) <= len(inside):
        cause, odd, others = HangCause.TEARDOWN, gone, inside
        text = (
            f"{ranks_label(gone)} {have} left the loop before {ranks_label(inside)}, and "
            f"{_waits_there(job, waiting, gone)}"
        )
    else:
        cause, odd, others = HangCause.RANK_MISSING, inside, gone
        text = (
            f"{ranks_label(inside)} {_waits_there(job, waiting, inside)}, in a loop that "
            f"{ranks_label(gone)} {have} left"
        )
    confidence = Confidence.LOW
    if job.all_sleep:
        confidence = Confidence.MEDIUM
    operation = waiting[others[0]]
    collective = StuckCollective(
        operation=operation, purpose=purpose(operation, job.ranks[others[0]].frames)
    )
    return make_verdict(
        job,
        cause,
        odd,
        confidence,
        f"{collective_label(collective)}: {text}",
        collective=collective,
        evidence=[f"{ranks_label(gone)} {_LEFT_BECAUSE}"],
    )


def _have_left(job: Job, ahead: Sequence[int], behind: Sequence[int]) -> bool:
    """Whether each rank of the one side has left for good a loop in which each of the other side
    is."""
    return all(
        has_left_loop(mine.frames, mine.loops, theirs.frames, theirs.loops)
        for mine in (job.ranks[rank] for rank in ahead)
        for theirs in (job.ranks[rank] for rank in behind)
    )


def _waits_there(job: Job, waiting: Mapping[int, str], ranks: Sequence[int]) -> str:
    """``wait in all_reduce, at train.py:12``, of ranks that wait in one place."""
    operation = waiting[ranks[0]]
    if operation == _BACKWARD:
        operation = f"the {operation}"
    return f"{agreeing(ranks, 'waits', 'wait')} in {operation}, at {job.where(ranks[0])}"


def explain_by_activity(job: Job) -> Autopsy | None:
    """Where stacks are not known, a rank that computes while all others sleep is the one that has
    not arrived. Not where a stack that is known contradicts that, nor where a recorder shows what
    ranks wait in."""
    busy = job.busy
    known = {rank: evidence.frames for rank, evidence in job.ranks.items() if evidence.frames}
    waits_busily = any(wait_of(frames) for rank, frames in known.items() if rank in busy)
    sleeps_elsewhere = any(not seems_to_wait(job, rank) for rank in known if rank not in busy)
    if job.stalls or not busy or waits_busily or sleeps_elsewhere:
        return None
    are, they_have = agreeing(busy, "is", "are"), agreeing(busy, "it has", "they have")
    summary = (
        f"{ranks_label(busy)} {are} busy while all others sleep: {they_have} not arrived where the "
        "others wait"
    )
    return make_verdict(job, HangCause.RANK_MISSING, busy, Confidence.LOW, summary)


def _without_collectives(job: Job, known: Mapping[int, Sequence[StackFrame]]) -> Autopsy | None:
    """No rank waits in a collective: all of them load data or end, or one does."""
    for cause, test, text in (
        (HangCause.LOADER, is_loading, "loading data"),
        (HangCause.TEARDOWN, is_ending, "in teardown"),
    ):
        ranks = tuple(rank for rank, frames in sorted(known.items()) if test(frames))
        if ranks:
            label = f"{ranks_label(ranks)} {agreeing(ranks, 'is', 'are')}"
            summary = f"no rank waits in a collective; {label} {text}"
            place_of_all = sole({job.where(rank) for rank in ranks})
            if place_of_all is not None:
                summary += f" in {place_of_all}"
            confidence = Confidence.LOW
            if len(known) == len(job.ranks):
                confidence = Confidence.MEDIUM
            return make_verdict(job, cause, ranks, confidence, summary)
    return None
