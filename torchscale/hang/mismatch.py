"""Ranks whose calls under one number differ: in the operation, the size or the type."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.hang.collectives import Stall
from torchscale.hang.history import due_signature, odd_ranks, swapped
from torchscale.hang.job import Job
from torchscale.hang.signatures import Signature
from torchscale.hang.verdict import (
    agreeing,
    call_arguments,
    collective_label,
    make_verdict,
    of_group,
    ranks_label,
    stuck_collective,
)
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Confidence
from torchscale.util.units import format_bytes


def mismatch_where_they_are(job: Job) -> Autopsy | None:
    """Ranks that wait in one collective with different arguments."""
    for stall in job.stalls:
        if stall.is_mismatch and stall.waiting:
            return explain_mismatch(job, stall)
    return None


def mismatch_before(job: Job) -> Autopsy | None:
    """Ranks whose calls differed earlier, in a collective that completed by chance."""
    for stall in job.stalls:
        if stall.is_mismatch:
            return explain_mismatch(job, stall)
    return None


def mismatch_with_ended(job: Job) -> Autopsy | None:
    """A rank that gloo ended because it received more than its call expects. Either that rank
    passed too little, or another one too much: the calls of the ranks that are left decide."""
    ended = {
        rank: evidence.size_error
        for rank, evidence in job.ranks.items()
        if evidence.size_error is not None
    }
    stall = next((stall for stall in job.nearest_first if set(ended) & set(stall.silent)), None)
    if stall is None:
        return None
    victim = next(rank for rank in ended if rank in stall.silent)
    signature, *others = sorted(set(stall.signatures.values()))
    due = due_signature(stall)
    known = tuple(sorted(stall.signatures))
    cause = HangCause.SIZE_MISMATCH
    odd: tuple[int, ...]
    if others:
        return explain_mismatch(job, stall)
    unseen = tuple(rank for rank in (*stall.missing, *stall.silent) if rank != victim)
    if unseen:
        odd, confidence, why = (
            (*unseen, victim),
            Confidence.LOW,
            f"what {ranks_label(unseen)} called is not known",
        )
    elif len(known) > 1:
        odd, confidence, why = (victim,), Confidence.HIGH, "all other ranks called the same"
    elif due is None:
        odd, confidence, why = (
            (*known, victim),
            Confidence.LOW,
            "nothing says which of them is wrong",
        )
    else:
        odd = (victim,)
        if due != signature:
            odd, cause = known, _cause_of([due, signature])
        confidence, why = (
            Confidence.MEDIUM,
            f"earlier rounds called at this point what {ranks_label(odd)} did not",
        )
    received, expected = ended[victim]
    collective = stuck_collective(job, stall, ())
    called = f"{ranks_label(known)} called {call_arguments(stall.call(known[0]))}"
    summary = (
        f"{collective_label(collective)}: rank {victim} received {format_bytes(received)} where "
        f"its call expects {format_bytes(expected)}, and was ended by gloo; {called}"
    )
    return make_verdict(job, cause, odd, confidence, summary, collective=collective, evidence=[why])


def _cause_of(signatures: Sequence[Signature]) -> HangCause:
    """Whether calls under one number differ in operation, dtype or size, as a cause."""
    if len({tuple(operation for operation, _, _ in signature) for signature in signatures}) > 1:
        return HangCause.COLLECTIVE_MISMATCH
    if len({tuple(dtypes for _, _, dtypes in signature) for signature in signatures}) > 1:
        return HangCause.DTYPE_MISMATCH
    return HangCause.SIZE_MISMATCH


def explain_mismatch(job: Job, stall: Stall) -> Autopsy:
    """The verdict on one collective that ranks called with different arguments."""
    odd, clear = odd_ranks(stall)
    named = len(odd) < len(stall.signatures)
    calls = {rank: stall.call(rank) for rank in sorted(stall.signatures)}
    cause = _cause_of(list(stall.signatures.values()))
    if swapped(stall):
        cause = HangCause.ORDER
    sides: dict[str, list[int]] = {}
    for rank, call in calls.items():
        sides.setdefault(call_arguments(call), []).append(rank)
    ordered = sorted(
        sides.items(), key=lambda side: (not (named and set(side[1]) <= set(odd)), side[1])
    )
    said = ", ".join(f"{ranks_label(ranks)} called {text}" for text, ranks in ordered)
    evidence = []
    if named:
        collective, confidence = stuck_collective(job, stall, odd), Confidence.MEDIUM
    else:
        collective, confidence = stuck_collective(job, stall, ()), Confidence.LOW
        evidence.append("nothing says which of them is wrong")
    summary = f"{collective.operation} #{stall.number}{of_group(stall)}: {said}"
    if named and clear:
        confidence = Confidence.HIGH
    elif named:
        summary += f"; {ranks_label(odd)} {agreeing(odd, 'differs', 'differ')} from earlier rounds"
    if cause is HangCause.ORDER:
        summary += "; they call the same collectives in different orders"
    return make_verdict(
        job, cause, odd, confidence, summary, collective=collective, evidence=evidence
    )
