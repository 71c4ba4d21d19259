"""Ranks whose calls under one number differ: in the operation, the size or the type."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.features.watch.hang.collectives import Stall
from torchscale.features.watch.hang.history import due_signature, odd_ranks, swapped
from torchscale.features.watch.hang.job import Job
from torchscale.features.watch.hang.signatures import Signature, differing_parts
from torchscale.features.watch.hang.verdict import (
    call_arguments,
    collective_label,
    make_verdict,
    of_group,
    stuck_collective,
)
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Confidence
from torchscale.util.text import agreeing, ranks_label
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
    dtypes = {tuple(dtypes for _, _, dtypes in signature) for signature in signatures}
    counts = {tuple(map(len, of_rank)) for of_rank in dtypes}
    if len(dtypes) > 1 and len(counts) == 1:
        return HangCause.DTYPE_MISMATCH
    return HangCause.SIZE_MISMATCH


def explain_mismatch(job: Job, stall: Stall) -> Autopsy:
    """The verdict on one collective that ranks called with different arguments."""
    odd, clear = odd_ranks(stall)
    named = len(odd) < len(stall.signatures)
    cause = _cause_of(list(stall.signatures.values()))
    if swapped(stall):
        cause = HangCause.ORDER
    evidence = []
    if named:
        collective, confidence = stuck_collective(job, stall, odd), Confidence.MEDIUM
    else:
        collective, confidence = stuck_collective(job, stall, ()), Confidence.LOW
        evidence.append("nothing says which of them is wrong")
    summary = describe_difference(job, stall)
    if named and clear:
        confidence = Confidence.HIGH
    elif named:
        summary += f"; {ranks_label(odd)} {agreeing(odd, 'differs', 'differ')} from earlier rounds"
    if cause is HangCause.ORDER:
        summary += "; they call the same collectives in different orders"
    return make_verdict(
        job, cause, odd, confidence, summary, collective=collective, evidence=evidence
    )


def describe_difference(job: Job, stall: Stall) -> str:
    """``all_reduce #7: rank 1 called …, ranks 0 and 2 called …``, those first that differ from what
    was due. Of coalesced collectives the first part in which ranks differ."""
    odd, _ = odd_ranks(stall)
    named = len(odd) < len(stall.signatures)
    collective = stuck_collective(job, stall, odd if named else ())
    positions, parts = differing_parts({rank: stall.calls(rank) for rank in stall.signatures})
    sides: dict[str, list[int]] = {}
    for rank, of_rank in sorted(parts.items()):
        text = call_arguments(stall.call(rank))
        if positions:
            text = call_arguments(of_rank[positions[0]])
        elif len(of_rank) > 1:
            text = f"{stall.call(rank).operation} of {len(of_rank)} parts"
        sides.setdefault(text, []).append(rank)
    ordered = sorted(
        sides.items(), key=lambda side: (not (named and set(side[1]) <= set(odd)), side[1])
    )
    said = ", ".join(f"{ranks_label(ranks)} called {text}" for text, ranks in ordered)
    where = ""
    if positions:
        count = len(parts[min(parts)])
        where = f", {_parts_label(positions)} of {count}"
    return f"{collective.operation} #{stall.number}{of_group(stall)}{where}: {said}"


def _parts_label(positions: Sequence[int]) -> str:
    """``part 2``, ``part 2 (and 3 more)``: the first in which ranks differ, from 1 on."""
    label = f"part {positions[0] + 1}"
    if len(positions) == 1:
        return label
    return f"{label} (and {len(positions) - 1} more)"
