"""Explains a hang from what ranks left: which collective, which rank did not arrive, how sure.

Ranks wait for each other, so most of them are victims. The one to name is found by following who
waits for whom: a rank that is missing in one collective and itself waits in another is a victim as
well.
"""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.features.watch.hang.absence import explain_ended, explain_missing
from torchscale.features.watch.hang.circles import explain_circle, explain_circle_of_devices
from torchscale.features.watch.hang.collectives import Stall, first_mismatch
from torchscale.features.watch.hang.devices import explain_device
from torchscale.features.watch.hang.job import Job, RankEvidence, job_of
from torchscale.features.watch.hang.mismatch import (
    explain_mismatch,
    mismatch_before,
    mismatch_where_they_are,
    mismatch_with_ended,
)
from torchscale.features.watch.hang.verdict import collective_label, make_verdict, stuck_collective
from torchscale.features.watch.hang.without_recorder import explain_by_activity, explain_by_stacks
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Confidence
from torchscale.util.text import agreeing, ranks_label
from torchscale.util.units import format_seconds

_MAX_PLACES = 4
"""Maximum number of places of ranks in one line; the evidence lists all."""


def explain_hang(
    ranks: Sequence[RankEvidence], notes: Sequence[str] = (), moved_seconds_ago: float | None = None
) -> Autopsy:
    """Why these ranks make no progress.

    Args:
        ranks: Every rank of the job.
        notes: Further evidence, a line each, which the verdict repeats.
        moved_seconds_ago: When the last progress was, if the job may be slow and not hang: then no
            rank is named.
    """
    job = job_of(ranks, notes)
    if moved_seconds_ago is not None:
        summary = (
            f"the last progress was {format_seconds(moved_seconds_ago)} earlier, so the ranks may "
            "not hang"
        )
        return make_verdict(job, HangCause.UNKNOWN, (), Confidence.LOW, summary)
    return (
        mismatch_where_they_are(job)
        or mismatch_with_ended(job)
        or explain_ended(job)
        or mismatch_before(job)
        or explain_circle(job)
        or explain_missing(job)
        or explain_circle_of_devices(job)
        or explain_device(job)
        or explain_by_stacks(job)
        or explain_by_activity(job)
        or _passed_mismatch(job)
        or _unknown(job)
    )


def explain_failure(ranks: Sequence[RankEvidence]) -> Autopsy | None:
    """Whether ranks of a launch that failed called collectives that do not fit together, for which
    gloo ends a rank; ``None`` where nothing says so."""
    job = job_of(ranks, ())
    stall = first_mismatch(job.groups)
    if stall is None:
        return mismatch_with_ended(job)
    return explain_mismatch(job, stall)


def _passed_mismatch(job: Job) -> Autopsy | None:
    """Nobody waits in a collective, and ranks called one with different arguments that has
    completed."""
    stall = first_mismatch(job.groups)
    if job.stalls or stall is None:
        return None
    found = explain_mismatch(job, stall)
    summary = f"{found.summary}; all have left it, and no rank is known to wait"
    return found.model_copy(update={"summary": summary, "confidence": Confidence.LOW})


def _unknown(job: Job) -> Autopsy:
    """Nothing names a rank."""
    stall = next(iter(job.stalls), None)
    if stall is not None:
        collective = stuck_collective(job, stall, ())
        text = "no rank can be named"
        if not stall.silent and not stall.missing:
            text = f"{_who_called(stall)}, and {_not_left(stall)}"
        summary = f"{collective_label(collective)}: {text}"
        return make_verdict(
            job, HangCause.UNKNOWN, (), Confidence.LOW, summary, collective=collective
        )
    places = sorted({(job.where(rank), rank) for rank in job.ranks if job.where(rank)})
    where = [
        f"rank {rank} is in {text}"
        for text, rank in sorted(places, key=lambda item: item[1])[:_MAX_PLACES]
    ]
    if len(job.ranks) > 1 or not where:
        where.insert(0, "no rank is known to wait in a collective")
    return make_verdict(job, HangCause.UNKNOWN, (), Confidence.LOW, "; ".join(where))


def _who_called(stall: Stall) -> str:
    """That every rank has called it, as far as that is known."""
    if not stall.log.is_partial:
        return "every rank has called it"
    return f"every rank whose log tells of it has called it ({ranks_label(stall.called)})"


def _not_left(stall: Stall) -> str:
    """``none has left``, ``rank 1 has not left``."""
    if len(stall.waiting) == len(stall.called):
        return "none has left"
    return f"{ranks_label(stall.waiting)} {agreeing(stall.waiting, 'has', 'have')} not left"
