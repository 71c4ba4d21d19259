"""What is known of the ranks of a job, and where their collectives stand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torchscale.features.watch.hang.activity import Activity, busy_among_idle
from torchscale.features.watch.hang.collective_log import CollectiveLog
from torchscale.features.watch.hang.collectives import (
    GroupLog,
    Stall,
    find_stalls,
    group_logs,
)
from torchscale.features.watch.hang.stacks import (
    LineRange,
    collective_in,
    is_in_backward,
    is_joining,
    place,
)
from torchscale.schema.launch.hang import RankCondition, StackFrame


@dataclass(frozen=True)
class RankEvidence:
    """What is known of one rank.

    Attributes:
        rank: Global rank.
        condition: Condition of its process.
        frames: Python stack of its main thread, outermost first; empty where unknown.
        log: Collectives of the rank; ``None`` without a recorder.
        problem: Why there is no ``log``.
        silence: What is said of it without a ``log``.
        pid: PID of its process, where known.
        size_error: Bytes that gloo received and that it expected, if it ended the rank for that.
        activity: Whether it computes or sleeps; ``None`` where that is not known, or says nothing
            about waiting.
        loops: The outermost loop around the line of each of ``frames``; empty where its source is
            not known.
        world_size: Ranks of its job; 0 where not known.
        meets_at: Where it meets the others; empty where not known.
        is_from_log: Whether what is known of it is what NCCL's watchdog wrote into its log.
    """

    rank: int
    condition: RankCondition = RankCondition.RUNNING
    frames: tuple[StackFrame, ...] = ()
    log: CollectiveLog | None = None
    problem: str = ""
    pid: int | None = None
    size_error: tuple[int, int] | None = None
    activity: Activity | None = None
    loops: tuple[LineRange | None, ...] = ()
    silence: str = "left no dump"
    world_size: int = 0
    meets_at: str = ""
    is_from_log: bool = False


@dataclass(frozen=True)
class Job:
    """All ranks, and where their collectives stand."""

    ranks: Mapping[int, RankEvidence]
    groups: Sequence[GroupLog]
    stalls: Sequence[Stall]
    notes: tuple[str, ...] = ()
    waits_in: Mapping[int, Sequence[Stall]] = field(default_factory=dict)

    @property
    def nearest_first(self) -> list[Stall]:
        """Stalls; first those in which no missing rank waits for others itself, so that the cause
        is in them."""
        return sorted(
            self.stalls, key=lambda stall: sum(bool(self.waits_in[rank]) for rank in stall.missing)
        )

    def where(self, rank: int) -> str:
        """The line a rank is at; empty where unknown."""
        return place(self.ranks[rank].frames)

    @property
    def busy(self) -> tuple[int, ...]:
        """The ranks that compute while all others sleep; empty where that is not so or not
        known."""
        return busy_among_idle({rank: evidence.activity for rank, evidence in self.ranks.items()})

    @property
    def all_sleep(self) -> bool:
        """Whether every rank is known to sleep."""
        return all(evidence.activity is Activity.IDLE for evidence in self.ranks.values())

    def with_condition(self, condition: RankCondition) -> tuple[int, ...]:
        """Ranks whose process is in this state."""
        return tuple(
            rank for rank, evidence in sorted(self.ranks.items()) if evidence.condition is condition
        )


def job_of(ranks: Sequence[RankEvidence], notes: Sequence[str]) -> Job:
    """The ranks in their order, their groups, and which collectives do not complete."""
    by_rank = {
        evidence.rank: evidence for evidence in sorted(ranks, key=lambda evidence: evidence.rank)
    }
    logs = {rank: evidence.log for rank, evidence in by_rank.items() if evidence.log is not None}
    groups = group_logs(logs, tuple(by_rank))
    stalls = find_stalls(groups)
    waits_in: dict[int, list[Stall]] = {rank: [] for rank in by_rank}
    for stall in stalls:
        for rank in stall.waiting:
            waits_in[rank].append(stall)
    return Job(by_rank, groups, stalls, (*notes, *_recorders_read(logs.values())), waits_in)


def _recorders_read(logs: Iterable[CollectiveLog]) -> list[str]:
    """A line about which of torch's recorders were read, and how much they had."""
    counts: dict[str, list[int]] = {}
    for log in logs:
        for name, count in log.recorders.items():
            counts.setdefault(name, []).append(count)
    if not counts:
        return []
    said = ", ".join(f"{name} ({_range(found)})" for name, found in sorted(counts.items()))
    return [f"flight recorders read, with their collectives of a rank: {said}"]


def _range(counts: Sequence[int]) -> str:
    """``57``, ``40 to 57``, ``none``."""
    least, most = min(counts), max(counts)
    if not most:
        return "none"
    return f"{least:,} to {most:,}" if least < most else f"{most:,}"


def wait_of(frames: Sequence[StackFrame]) -> str:
    """The collective, or the wait for other ranks, that a stack is in; empty for none."""
    if is_joining(frames):
        return "init_process_group"
    return collective_in(frames)


def seems_to_wait(job: Job, rank: int) -> bool:
    """Whether the stack of a rank without a recorder shows that it waits for others."""
    frames = job.ranks[rank].frames
    return bool(wait_of(frames)) or is_in_backward(frames)
