"""A launch that makes no progress: what each rank left when it was asked, and what was concluded
from it."""

from __future__ import annotations

from enum import Enum

from pydantic import Field, JsonValue

from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    EpochSeconds,
    Frozen,
    NotNegative,
)
from torchscale.schema.exports.base import PublishedDocument
from torchscale.schema.profiles.finding import Confidence

FACTS_FILE = "hang.json"
"""File in a launch directory: :class:`HangFacts`."""
REQUEST_FILE = "autopsy-request"
"""File in a launch directory that asks every rank for a :class:`RankDump`."""


def dump_file(rank: int | str) -> str:
    """Name of a rank's :class:`RankDump` in the launch directory; of all ranks' for ``*``."""
    return f"autopsy-rank-{rank}.json"


class StackFrame(Frozen):
    """One Python frame. ``file`` is the path as Python knows it, ``line`` the line that it
    executes."""

    file: str
    line: Count
    function: str


class ThreadStack(Frozen):
    """Python stack of one thread.

    Attributes:
        name: Name of the thread.
        is_main: Whether it is the main thread, which trains.
        frames: Outermost first.
    """

    name: str
    is_main: bool = False
    frames: tuple[StackFrame, ...] = ()


class RankDump(Frozen):
    """``autopsy-rank-R.json``: what a rank knows about itself while it hangs.

    Attributes:
        schema_version: Schema version of this file.
        rank: Global rank.
        pid: Process id.
        time: When it was written, in seconds since the epoch.
        since: Start of the launch, in seconds since the epoch: the recorder may hold collectives of
            launches before.
        threads: Python stacks.
        groups: Name of each process group that the rank is in → its global ranks.
        flight_recorders: Name of each of torch's flight recorders (``nccl``, ``gloo``) → what it
            holds, as torch writes it.
        problem: Why no collectives are in it; empty where some are.
        error: Message of what the rank raised, if that is why it wrote this.
    """

    schema_version: Count = SCHEMA_VERSION
    rank: Count
    pid: Count
    time: EpochSeconds
    since: EpochSeconds
    threads: tuple[ThreadStack, ...] = ()
    groups: dict[str, tuple[Count, ...]] = Field(default_factory=dict)
    flight_recorders: dict[str, dict[str, JsonValue]] = Field(default_factory=dict)
    problem: str = ""
    error: str = ""


class RankCondition(str, Enum):
    """State of a rank's process, from the kernel."""

    RUNNING = "running"
    """Runs or sleeps."""
    STOPPED = "stopped"
    """Stopped by a signal or a debugger."""
    GONE = "gone"
    """Has ended."""


class RankProcess(Frozen):
    """A rank's process when the launcher looked for it; ``pid`` is ``None`` where there was
    none."""

    rank: Count
    pid: Count | None = None
    condition: RankCondition = RankCondition.RUNNING


class HangFacts(Frozen):
    """``hang.json``: what the launcher saw before it ended a launch that made no progress.

    Attributes:
        schema_version: Schema version of this file.
        processes: Processes of every rank.
        stacks: Main thread of ranks that did not answer, from py-spy.
        notes: What NCCL's RAS service said, a line each.
        moved_seconds_ago: When the last progress was, of a launch that may be slow and not hang.
    """

    schema_version: Count = SCHEMA_VERSION
    processes: tuple[RankProcess, ...] = ()
    stacks: dict[Count, tuple[StackFrame, ...]] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    moved_seconds_ago: NotNegative | None = None


class HangCause(str, Enum):
    """Why ranks wait for each other."""

    RANK_MISSING = "rank_missing"
    """A rank did not call the collective that others are in."""
    COLLECTIVE_MISMATCH = "collective_mismatch"
    """Ranks called different operations where they should have called the same."""
    SIZE_MISMATCH = "size_mismatch"
    """Ranks called the same operation with different sizes."""
    DTYPE_MISMATCH = "dtype_mismatch"
    """Ranks called the same operation with different dtypes."""
    ORDER = "order"
    """Ranks called the same operations in different orders and wait for each other."""
    DEVICE_BEHIND = "device_behind"
    """Every rank called a collective, and the device of a rank has not begun it while others
    have."""
    RANK_GONE = "rank_gone"
    """The process of a rank has ended."""
    RANK_STOPPED = "rank_stopped"
    """The process of a rank is stopped by a signal or a debugger."""
    NODE_MISSING = "node_missing"
    """torchrun waits for those of other nodes, and has started no rank."""
    LOADER = "loader"
    """A rank waits for its data."""
    TEARDOWN = "teardown"
    """A rank has left training and hangs while it ends."""
    UNKNOWN = "unknown"
    """The evidence names no rank."""


class StuckCollective(Frozen):
    """A collective that did not complete.

    Attributes:
        operation: Operation as torch names it: ``all_reduce``.
        sequence: Number of the collective in the group, as the flight recorder counts; ``None``
            where only stacks are known.
        group: Name of the process group; empty for the default group.
        group_ranks: Global ranks of that group; empty where they are not known.
        payload_bytes: Bytes of the tensors that a rank passed; ``None`` where unknown or different
            between ranks.
        elements: Elements of these tensors, where their bytes are not known; else ``None``.
        dtype: Type of these tensors; ``None`` where unknown or different between ranks.
        purpose: What it is for, where the stacks tell: ``gradients``, ``barrier``.
    """

    operation: str
    sequence: Count | None = None
    group: str = ""
    group_ranks: tuple[Count, ...] = ()
    payload_bytes: Count | None = None
    elements: Count | None = None
    dtype: str | None = None
    purpose: str = ""


class RankPosition(Frozen):
    """Where a rank was.

    Attributes:
        rank: Global rank.
        condition: Condition of its process.
        place: The rank's Python line, as ``dataset.py:88 `read```; empty where unknown.
        collective: The collective it waits in, as ``all_reduce #57``; empty where it waits in none
            or that is unknown.
    """

    rank: Count
    condition: RankCondition = RankCondition.RUNNING
    place: str = ""
    collective: str = ""


class Autopsy(Frozen):
    """Why a job made no progress.

    Attributes:
        schema_version: Schema version of this document.
        cause: What kind.
        ranks: Ranks at fault; both sides where the evidence does not say which one is wrong; empty
            for an unknown cause.
        collective: The collective that the others wait in; ``None`` where no rank is known to wait
            in one.
        confidence: Confidence that ``ranks`` are the right ones: low where the flight recorder is
            missing.
        summary: One line.
        evidence: What it rests on, a line each.
        positions: Every rank's.
    """

    schema_version: Count = SCHEMA_VERSION
    cause: HangCause
    ranks: tuple[Count, ...] = ()
    collective: StuckCollective | None = None
    confidence: Confidence
    summary: str
    evidence: tuple[str, ...] = ()
    positions: tuple[RankPosition, ...] = ()


DOCUMENT = PublishedDocument(
    Autopsy,
    SCHEMA_VERSION,
    "torchscale autopsy",
    "Why a job made no progress: `torchscale autopsy --json`, `autopsy` in the cells of a report.",
)
