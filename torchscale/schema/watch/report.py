"""``watch.json``: what is known of a watched job."""

from __future__ import annotations

from datetime import timedelta
from enum import Enum
from typing import Literal

from pydantic import Field

from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    EpochSeconds,
    Frozen,
    Integer,
    Moment,
    NotNegative,
    PositiveCount,
    Real,
    Seconds,
)
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.profiles.finding import Abstention, Finding
from torchscale.schema.watch.failure import JobFailure
from torchscale.schema.watch.rank import ProgramLine, RankNumber, WorldSize
from torchscale.schema.watch.start import RankStart
from torchscale.util.units import parse_moment


def span_text(first: int | None, last: int | None) -> str:
    """``since step 12,400``, ``from step 400 to step 1,500``; empty for a whole job.

    Args:
        first, last: Steps; ``None`` for the job's first and its last.
    """
    if first is None and last is None:
        return ""
    if last is None:
        return f"since step {first:,}"
    if first is None:
        return f"until step {last:,}"
    return f"from step {first:,} to step {last:,}"


class WatchFinding(Frozen):
    """A finding and the steps that it is about.

    Attributes:
        finding: What limits the job there; its costs are shares of a step there.
        first_step, last_step: ``None`` for the job's first and its last.
        lines: Lines of the program at which the rank is longer than the others, with the seconds a
            step that it is longer.
        collective: What the others wait for it at most.
        cost_dollars: Of all devices over the steps that it is about; ``None`` without a price.
    """

    finding: Finding
    first_step: Count | None = None
    last_step: Count | None = None
    lines: tuple[tuple[ProgramLine, Real], ...] = ()
    collective: str = ""
    cost_dollars: NotNegative | None = None

    @property
    def span(self) -> str:
        """``since step 12,400``; empty where it is about the whole job."""
        return span_text(self.first_step, self.last_step)


class WatchedRank(Frozen):
    """A rank's mean step and what its process used.

    Attributes:
        rank, host, pid: Which.
        own_seconds: Neither blocked nor waiting for data; where ``waits_by`` of the report is
            ``lengths``, all but waits, since what compute hides of transfers is not known.
        data_seconds: Waiting for the data loader.
        wait_seconds: For ranks that came later to a collective; ``None`` where that is not measured.
        transfer_seconds: Blocked, once all had come; ``None`` where that is not measured.
        bubble_seconds: Blocked for sends and receives.
        blame: Share of all waiting for which this rank came last; ``None`` where that is not
            measured.
        cpu_seconds: Of the process, since its start.
        peak_memory_bytes: Resident.
        lost_calls: Collectives that were not seen.
        recorders: Name of each of torch's flight recorders → collectives that were read from it.
        problem: What its collector could not do.
    """

    rank: Count
    host: str
    pid: Count
    own_seconds: NotNegative
    data_seconds: NotNegative
    wait_seconds: NotNegative | None
    transfer_seconds: NotNegative | None
    bubble_seconds: NotNegative
    blame: NotNegative | None
    cpu_seconds: NotNegative
    peak_memory_bytes: Count
    lost_calls: Count
    recorders: dict[str, Count] = Field(default_factory=dict)
    problem: str = ""


class JobTime(Frozen):
    """Where the wall time of a job went: seconds, device-seconds or dollars. The parts add up to
    all of it (docs/watch.md, "Goodput").

    Attributes:
        start: Of each attempt, until the end of its first step.
        steps: In steps that no earlier attempt had done, without what is below.
        recomputed: In steps that repeat those of an earlier attempt; 0 where not known.
        saving: Between the first and the last step, while a rank writes a checkpoint.
        evaluating: The same for evaluations, while no rank writes a checkpoint.
        stalls: Without a sign of progress on any rank, beyond what a step takes.
        unseen: After the last step that was written, where a rank could not write any more.
        end: Of each attempt, after its last step.
        restarts: Between two attempts.
        idle: Between two runs of the command.
    """

    start: NotNegative = 0.0
    steps: NotNegative = 0.0
    recomputed: NotNegative = 0.0
    saving: NotNegative = 0.0
    evaluating: NotNegative = 0.0
    stalls: NotNegative = 0.0
    unseen: NotNegative = 0.0
    end: NotNegative = 0.0
    restarts: NotNegative = 0.0
    idle: NotNegative = 0.0

    @property
    def total(self) -> float:
        """All parts."""
        return float(sum(getattr(self, name) for name in type(self).model_fields))

    @property
    def goodput(self) -> float:
        """Share of the wall time in productive steps."""
        return self.steps / self.total if self.total else 0.0

    def __add__(self, other: JobTime) -> JobTime:
        return JobTime(
            **{name: getattr(self, name) + getattr(other, name) for name in type(self).model_fields}
        )

    def times(self, factor: float) -> JobTime:
        """Each part multiplied."""
        return JobTime(**{name: getattr(self, name) * factor for name in type(self).model_fields})


class WatchedAttempt(Frozen):
    """One attempt of a job.

    Attributes:
        number: From 0 on, over all runs of the command.
        run: Of the command, from 0 on.
        world_size: Ranks.
        began, last_seen: Seconds since the epoch.
        steps: Steps that ended on any rank.
        first_step: Steps of the job before it; ``None`` where not known.
        repeated_steps: Steps that an earlier attempt had done; ``None`` where not known.
        origin: From where it went on, or why that is not known.
        time: Where its time went.
        failure: Why it ended, where it failed.
        lost_seconds: What its end cost: until the next one began, its start, and its steps that
            repeat others; ``None`` of the last one.
    """

    number: RankNumber
    run: Count = 0
    world_size: WorldSize = 1
    began: EpochSeconds
    last_seen: EpochSeconds
    steps: Count = 0
    first_step: Count | None = 0
    repeated_steps: Count | None = 0
    origin: str = ""
    time: JobTime = JobTime()
    failure: JobFailure | None = None
    lost_seconds: NotNegative | None = None


class JobCost(Frozen):
    """What a job cost.

    Attributes:
        price: Dollars for a device and hour.
        parts: Dollars.
    """

    price: NotNegative
    parts: JobTime


class JobState(str, Enum):
    """How far a job is, and how it ended."""

    RUNNING = "running"
    """It is being watched."""
    DONE = "done"
    """It ended with exit code 0, or the user ended it."""
    FAILED = "failed"
    """It ended with another exit code."""
    LOST = "lost"
    """The command that watched it is gone without having written the end. No command writes this: who
    reads the report finds it."""


class WatchReport(Frozen):
    """A watched job.

    Attributes:
        command: argv, without secrets.
        role: What the program does in a job of several; empty where it is all of it.
        started_at: UTC, ISO 8601.
        seconds: Wall time so far.
        state: How far it is, and how it ended.
        exit_code: Of the program; ``None`` while it runs, and of one that the command did not start.
        world_size: Ranks of the job.
        restarts: Attempts before the last.
        torch, backend, device: Of its ranks.
        waits_by: What tells how long ranks wait for each other: ``calls`` of collectives, their
            ``lengths`` on the device, or ``nothing``.
        steps: Optimizer steps of all attempts.
        left_out_steps: First steps that no figure counts.
        step_seconds: Mean step of the slowest rank over all steps but the first ones; ``None``
            where it made no more than those, or counted none.
        findings: The costliest first.
        abstentions: What could not be judged.
        changes: Steps at which a level changed and a finding begins or ends.
        per_rank: By rank.
        startup: Where the start of each rank went, of the attempt that is judged.
        time: Where the wall time went, in seconds.
        device_time: The same times the ranks of each attempt.
        goodput: Share of the wall time in productive steps; the most that it can be where
            ``repeated_steps`` is not known, the least where some of the time was not seen.
        repeated_steps: Steps that repeat those of an earlier attempt; ``None`` where not known.
        attempts: The last ones.
        runs: Runs of the command.
        cost: ``None`` without a price.
        collector_share: Share of the steps that the collector took in the main threads.
        notes: What could not be seen, a line each.
        autopsy: Why the job made no progress, when it last did not.
        failure: Why it failed; ``None`` while it runs, and of one that has not.
    """

    schema_version: Count = SCHEMA_VERSION
    kind: Literal["watch"] = "watch"
    tool_version: str
    command: tuple[str, ...]
    role: str = ""
    started_at: Moment
    seconds: Seconds
    state: JobState = JobState.RUNNING
    exit_code: Integer | None = None
    world_size: WorldSize = 1
    restarts: Count = 0
    torch: str = ""
    backend: str = ""
    device: str = ""
    waits_by: str = ""
    steps: Count = 0
    left_out_steps: Count = 0
    step_seconds: NotNegative | None = None
    findings: tuple[WatchFinding, ...] = ()
    abstentions: tuple[Abstention, ...] = ()
    changes: tuple[Count, ...] = ()
    per_rank: tuple[WatchedRank, ...] = ()
    startup: tuple[RankStart, ...] = ()
    time: JobTime = JobTime()
    device_time: JobTime = JobTime()
    goodput: NotNegative = 0.0
    repeated_steps: Count | None = 0
    attempts: tuple[WatchedAttempt, ...] = ()
    runs: PositiveCount = 1
    cost: JobCost | None = None
    collector_share: NotNegative = 0.0
    notes: tuple[str, ...] = ()
    autopsy: Autopsy | None = None
    failure: JobFailure | None = None

    @property
    def written_at(self) -> str:
        """``2026-01-02 14:05:10 UTC``: when it was judged; empty where its start is not known."""
        started = parse_moment(self.started_at)
        if started is None:
            return ""
        return f"{started + timedelta(seconds=self.seconds):%Y-%m-%d %H:%M:%S} UTC"
