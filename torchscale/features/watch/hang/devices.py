"""Ranks that have called a collective and whose device has not begun it, while those of others
have."""

from __future__ import annotations

from torchscale.features.watch.hang.collective_log import (
    COMPLETED,
    SCHEDULED,
    STARTED,
    CollectiveCall,
)
from torchscale.features.watch.hang.collectives import Stall
from torchscale.features.watch.hang.job import Job
from torchscale.features.watch.hang.verdict import collective_label, make_verdict, stuck_collective
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Confidence
from torchscale.util.text import agreeing, ranks_label


def explain_device(job: Job) -> Autopsy | None:
    """Ranks whose device is still in what was launched before a collective that all have called,
    and in no other one."""
    for stall in job.stalls:
        behind = tuple(rank for rank in _not_begun(job, stall) if not _is_elsewhere(job, rank))
        if behind:
            return _verdict(job, stall, behind)
    return None


def _not_begun(job: Job, stall: Stall) -> list[int]:
    """The ranks whose device has not begun it, where that of another rank has. Some recorders never
    say ``started``: what they call ``scheduled`` may have begun."""
    if stall.states.isdisjoint({STARTED, COMPLETED}):
        return []
    scheduled = [rank for rank in stall.waiting if stall.call(rank).state == SCHEDULED]
    in_doubt = STARTED in stall.states
    return [rank for rank in scheduled if _tells_starts(job, stall, rank, in_doubt=in_doubt)]


def _tells_starts(job: Job, stall: Stall, rank: int, *, in_doubt: bool) -> bool:
    """Whether the recorder of a rank says when its device begins a call; ``in_doubt`` where no call
    of it has completed."""
    log = job.ranks[rank].log
    if log is None:
        return in_doubt
    return log.tells_starts.get(stall.call(rank).backend, in_doubt)


def _is_elsewhere(job: Job, rank: int) -> bool:
    """Whether a rank's device has begun another collective that does not complete."""
    return any(stall.call(rank).state == STARTED for stall in job.waits_in[rank])


def _verdict(job: Job, stall: Stall, behind: tuple[int, ...]) -> Autopsy:
    collective = stuck_collective(job, stall, behind)
    devices = agreeing(behind, "the device of", "the devices of")
    have, they_are = agreeing(behind, "has", "have"), agreeing(behind, "it is", "they are")
    summary = (
        f"{collective_label(collective)}: {devices} {ranks_label(behind)} {have} not begun it; "
        f"{they_are} still in what was launched before"
    )
    confidence = Confidence.LOW
    if len(behind) < len(stall.called) - len(behind):
        confidence = Confidence.MEDIUM
    completed = [
        f"rank {rank}: the last collective that its device completed is {last}"
        for rank in behind
        if (last := _last_completed(job, rank))
    ]
    return make_verdict(
        job,
        HangCause.DEVICE_BEHIND,
        behind,
        confidence,
        summary,
        collective=collective,
        evidence=completed,
    )


def _last_completed(job: Job, rank: int) -> str:
    log = job.ranks[rank].log
    done: list[CollectiveCall] = []
    if log is not None:
        done = [call for call in log.calls if call.state == COMPLETED and not call.is_p2p]
    if not done:
        return ""
    return f"{done[-1].operation} #{done[-1].sequence}"
