"""What the report of a watched job says beside its figures: what was not seen, or is not known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from torchscale.analysis.exchanges.steps import WaitsBy
from torchscale.catalog.torch_versions import untested
from torchscale.features.watch.job.follow import JobFollower
from torchscale.features.watch.job.stream import RankStream
from torchscale.schema.watch.rank import RankFacts

_MOST_RANKS = 8
"""Ranks that are named."""


def notes_on_ranks(follower: JobFollower, *, has_steps: bool, is_over: bool) -> list[str]:
    """Notes on what the ranks wrote.

    Args:
        follower: Of the last attempt.
        has_steps: Whether a step was seen in any attempt.
        is_over: Whether the job has ended.
    """
    streams = follower.streams
    if not streams:
        return [
            "no rank reported: the program imported no torch, trained nothing, runs in a Python "
            "that ignores PYTHONPATH (python -I, env -i, a container of its own), or could not "
            "reach this folder (chroot)",
        ]
    notes = [
        f"rank {rank}: {stream.facts.problem}"
        for rank, stream in streams.items()
        if stream.facts.problem
    ]
    if is_over:
        notes += _torn_notes(streams)
    hosts = {stream.facts.host for stream in streams.values()}
    facts = next(iter(streams.values())).facts
    if not has_steps:
        reason = ": neither an optimizer of torch nor repeated collectives"
        if any(stream.facts.problem for stream in streams.values()):
            reason = " on all ranks"
        notes.append(f"no step was seen{reason}")
    if len(streams) < facts.world_size:
        notes.append(
            f"{len(streams)} of {facts.world_size} ranks write here; waits for the others count "
            "as transfer"
        )
    if follower.round is not None:
        notes.append(
            "steps are rounds of collectives: no optimizer of torch stepped in this program"
        )
    if len(hosts) > 1 and follower.waits_by is WaitsBy.CALLS:
        notes.append(
            "ranks of several hosts have several clocks: ranks are compared within a host, and "
            "waits for ranks of another one count as transfer"
        )
    if not facts.has_recorder:
        notes.append(f"torch {facts.torch} records no collectives: who waits is not known")
    notes += filter(None, [untested(facts.torch)])
    recorded = Counter[str]()
    for stream in streams.values():
        recorded.update(stream.use.recorders)
    notes += _device_notes(follower, facts, recorded)
    failed = {
        f"torch's flight recorder of {name} failed on rank {rank}: {reason}"
        for rank, stream in streams.items()
        for name, reason in stream.use.failed_recorders.items()
    }
    notes += sorted(failed)[:_MOST_RANKS]
    lost = sum(stream.use.lost_calls for stream in streams.values())
    if lost:
        notes.append(
            f"{lost:,} collectives were not read: overwritten before, or of an unknown form"
        )
    if any(stream.has_gap for stream in streams.values()):
        notes.append("some steps were removed before they were read")
    return notes


def _torn_notes(streams: Mapping[int, RankStream]) -> list[str]:
    """Of a job that is over: ranks whose end nobody has written."""
    torn = [rank for rank, stream in streams.items() if stream.facts.state == "running"]
    if not torn:
        return []
    which = ", ".join(map(str, torn[:_MOST_RANKS])) + ", …" * (len(torn) > _MOST_RANKS)
    return [
        f"the end of these ranks was not written (they were killed, or the disk is full): "
        f"{which}; their last half second, or what the disk had no room for, is missing"
    ]


def _device_notes(
    follower: JobFollower, facts: RankFacts, recorded: Mapping[str, int]
) -> list[str]:
    """What is not known of a job whose collectives are kernels, or whose gloo copies from a device.

    Args:
        follower: Of the job.
        facts: Of one rank.
        recorded: Name of each flight recorder → the collectives of all ranks in it.
    """
    if facts.world_size < 2 or (facts.device == "cpu" and follower.waits_by is WaitsBy.CALLS):
        return []
    if recorded and not any(recorded.values()):
        return [
            f"no flight recorder of torch holds a collective ({', '.join(sorted(recorded))}: none), "
            f"so which rank is late is not known: {follower.backend or 'the backend'} writes to "
            "none, as nccl2 of torch 2.14, or CUDA graphs replay all of them"
        ]
    if follower.waits_by is WaitsBy.CALLS:
        return [
            "gloo waits for the device before it sends: a rank is compared by when its host calls a "
            "collective, and a slow device is not told from a transfer; torchscale profile tells"
        ]
    if follower.waits_by is WaitsBy.NOTHING:
        return [
            f"over {follower.backend} a call only puts a collective into the device's queue, so "
            "which rank is late is not known: `torchscale watch --timing` has torch measure how "
            "long each collective takes on each rank"
        ]
    if not follower.steps:
        return []
    if follower.sends >= follower.steps:
        return ["sends and receives on a device are not compared: no rank of a pipeline is named"]
    if not follower.compared:
        return [
            "no collective with a length on all ranks was seen, so which rank is late is not known: "
            "torch records none that a CUDA graph replays"
        ]
    return []
