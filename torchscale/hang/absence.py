"""Ranks that did not call a collective that others are in."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.hang.collectives import Stall
from torchscale.hang.history import leaves_loop
from torchscale.hang.job import Job, seems_to_wait, wait_of
from torchscale.hang.mismatch import describe_difference
from torchscale.hang.stacks import is_ending, is_loading, place
from torchscale.hang.verdict import (
    agreeing,
    collective_label,
    make_verdict,
    ranks_label,
    stuck_collective,
)
from torchscale.schema.launch.hang import (
    Autopsy,
    HangCause,
    RankCondition,
    StuckCollective,
)
from torchscale.schema.profiles.finding import Confidence


def explain_ended(job: Job) -> Autopsy | None:
    """A rank whose process has ended or is stopped: the others cannot go on, whatever they wait
    in."""
    for condition, cause, verbs, text in (
        (RankCondition.GONE, HangCause.RANK_GONE, ("has", "have"), "ended"),
        (
            RankCondition.STOPPED,
            HangCause.RANK_STOPPED,
            ("is", "are"),
            "stopped by a signal or a debugger",
        ),
    ):
        ranks = job.with_condition(condition)
        if ranks and len(ranks) < len(job.ranks):
            summary = f"{ranks_label(ranks)} {agreeing(ranks, *verbs)} {text}"
            collective: StuckCollective | None = None
            for stall in job.nearest_first:
                if set(ranks) & {*stall.silent, *stall.missing}:
                    collective = stuck_collective(job, stall, ranks)
                    summary = f"{collective_label(collective)}: {summary}"
                    break
            return make_verdict(job, cause, ranks, Confidence.HIGH, summary, collective=collective)
    return None


def explain_cycle(job: Job) -> Autopsy | None:
    """Ranks that wait in different groups, each for the other: they call the same collectives in
    different orders."""
    for first in job.stalls:
        for second in {
            id(stall): stall for rank in first.missing for stall in job.waits_in[rank]
        }.values():
            here = sorted(set(first.waiting) & set(second.missing))
            there = sorted(set(second.waiting) & set(first.missing))
            if here and there:
                label, other = (
                    collective_label(stuck_collective(job, stall, ())) for stall in (first, second)
                )
                summary = (
                    f"{ranks_label([*here, *there])} wait for each other: {ranks_label(here)} in "
                    f"{label}, {ranks_label(there)} in {other}; they call these collectives in "
                    "different orders"
                )
                return _verdict_on_cycle(job, summary, (first, here), (second, there))
    return None


def _verdict_on_cycle(job: Job, summary: str, *sides: tuple[Stall, Sequence[int]]) -> Autopsy:
    """Names the side that does not do what it did in earlier rounds, else both. The collective is
    that of the others, which the named side should have called."""
    leaving = [
        (stall, ranks)
        for stall, ranks in sides
        if all(leaves_loop(job.ranks[rank].log, stall.call(rank)) for rank in ranks)
    ]
    if len(leaving) == 1:
        ((left, odd),) = leaving
        stall = next(stall for stall, _ in sides if stall is not left)
        evidence = [f"earlier rounds called at this point what {ranks_label(odd)} did not"]
        confidence = Confidence.MEDIUM
    else:
        odd, stall = tuple(sorted({rank for _, ranks in sides for rank in ranks})), sides[0][0]
        evidence = ["nothing says which of them is wrong"]
        confidence = Confidence.LOW
    collective = stuck_collective(job, stall, odd)
    return make_verdict(
        job, HangCause.ORDER, odd, confidence, summary, collective=collective, evidence=evidence
    )


def explain_missing(job: Job) -> Autopsy | None:
    """Ranks that did not call a collective that others are in, and wait in no other themselves."""
    for stall in job.nearest_first:
        missing = [rank for rank in stall.missing if not job.waits_in[rank]]
        # The recorder of gloo holds no sends and receives: a rank whose stack is in one waits for
        # others as well.
        absent = [rank for rank in missing if not wait_of(job.ranks[rank].frames)]
        silent = [
            rank for rank in stall.silent if rank in job.ranks and not seems_to_wait(job, rank)
        ]
        absent = absent or silent or missing
        if not absent:
            continue
        chosen = _likeliest(stall, absent)
        has_log = set(chosen) <= set(stall.missing)
        waits_unrecorded = any(wait_of(job.ranks[rank].frames) for rank in chosen)
        few = len(chosen) <= len(stall.waiting)
        confidence = Confidence.MEDIUM
        if waits_unrecorded or not (has_log or all(job.ranks[rank].frames for rank in chosen)):
            confidence = Confidence.LOW
        elif has_log and few:
            confidence = Confidence.HIGH
        collective = stuck_collective(job, stall, chosen)
        said = ""
        if has_log:
            said = "never called it"
        cause, text = describe_absence(job, chosen, said)
        summary = f"{collective_label(collective)}: {text}"
        evidence = []
        if stall.passed is not None:
            evidence = [f"{describe_difference(job, stall.passed)}; it completed all the same"]
        return make_verdict(
            job, cause, chosen, confidence, summary, collective=collective, evidence=evidence
        )
    return None


def _likeliest(stall: Stall, absent: Sequence[int]) -> tuple[int, ...]:
    """The missing ranks that called the fewest collectives of the group: others may wait for them
    in ways that the recorder does not see."""
    counts = {rank: stall.log.last(rank) for rank in absent}
    fewest = min(counts.values())
    return tuple(sorted(rank for rank in absent if counts[rank] == fewest))


def describe_absence(job: Job, ranks: Sequence[int], said: str) -> tuple[HangCause, str]:
    """Why ranks are missing, and the sentence.

    Args:
        job: All ranks.
        ranks: Those that are missing.
        said: What is known to hold of them, as ``never called it``; empty where they left nothing
            that tells.
    """
    frames = [job.ranks[rank].frames for rank in ranks]
    they_are = agreeing(ranks, "it is", "they are")
    places = {place(stack) for stack in frames} - {""}
    where = ""
    if 0 < len(places) < 3:
        where = f" in {' and '.join(sorted(places))}"
    if not said:
        said = "left no dump"
        if any(job.ranks[rank].is_unread for rank in ranks):
            said = "left no dump that can be read"
    never = f"{ranks_label(ranks)} {said}"
    if all(map(is_loading, frames)):
        return HangCause.LOADER, f"{never}; {they_are} loading data{where}"
    waits = {wait_of(stack) for stack in frames}
    if len(waits) == 1 and "" not in waits:
        return (
            HangCause.RANK_MISSING,
            f"{never}; {they_are} in {waits.pop()}{where.replace(' in ', ', at ', 1)}",
        )
    if all(map(is_ending, frames)):
        return HangCause.TEARDOWN, f"{never}; {they_are} in teardown{where}"
    if not where:
        return HangCause.RANK_MISSING, never
    return HangCause.RANK_MISSING, f"{never}; {they_are}{where}"
