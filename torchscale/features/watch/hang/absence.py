"""Ranks that did not call a collective that others are in."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.features.watch.hang.collectives import Stall
from torchscale.features.watch.hang.job import Job, seems_to_wait, wait_of
from torchscale.features.watch.hang.mismatch import describe_difference
from torchscale.features.watch.hang.stacks import is_ending, is_loading, place
from torchscale.features.watch.hang.verdict import collective_label, make_verdict, stuck_collective
from torchscale.schema.launch.hang import (
    Autopsy,
    HangCause,
    RankCondition,
    StuckCollective,
)
from torchscale.schema.profiles.finding import Confidence
from torchscale.util.text import agreeing, ranks_label

_ENQUEUED = (
    "a watchdog counts what is enqueued: a rank that is still within the call is not told apart"
)


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


def explain_missing(job: Job) -> Autopsy | None:
    """Ranks that did not call a collective that others are in, and wait in no other themselves."""
    for stall in job.nearest_first:
        missing = [rank for rank in stall.missing if not job.waits_in[rank]]
        # The recorder of gloo holds no sends and receives: a rank whose stack is in one waits for
        # others as well.
        absent = [rank for rank in missing if not wait_of(job.ranks[rank].frames)]
        silent = [
            rank
            for rank in stall.silent
            if rank in job.ranks and not job.waits_in[rank] and not seems_to_wait(job, rank)
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
        elif has_log and few and not stall.silent:
            confidence = Confidence.HIGH
        collective = stuck_collective(job, stall, chosen)
        said = ""
        if has_log:
            said = "never called it"
        cause, text = describe_absence(job, chosen, said)
        summary = f"{collective_label(collective)}: {text}"
        evidence = []
        if has_log and any(job.ranks[rank].is_from_log for rank in chosen):
            evidence.append(_ENQUEUED)
        if stall.passed is not None:
            evidence = [f"{describe_difference(job, stall.passed)}; it completed all the same"]
        if has_log and stall.silent:
            evidence.append(f"whether {ranks_label(stall.silent)} called it is not known")
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
        said = max((job.ranks[rank].silence for rank in ranks), key=len)
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
