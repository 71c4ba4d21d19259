"""A recording with a profiler: what each rank wrote, how it ended."""

from __future__ import annotations

from torchscale.config.choices import ProfileTarget, Tool
from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    Frozen,
    Integer,
    Moment,
    Seconds,
)
from torchscale.schema.state import State

CPU_INFO_KEY = "torchscale_cpu"
"""Key of what torchscale adds to a trace of torch.profiler: the number of threads, and the logical
CPUs of the process."""


class RecordedRank(Frozen):
    """``recorded-rank-R.json``: written when a rank's trace is whole.

    Attributes:
        rank, world_size: Who.
        pid: PID of the rank's process: what an nsys report knows it by.
        trace: File name of its trace; ``None`` where nsys writes one for all.
        steps: Recorded.
        seconds: They took, with the profiler at work.
    """

    rank: Count
    world_size: Count
    pid: Count
    trace: str | None
    steps: Count
    seconds: Seconds


class Recording(Frozen):
    """``recording.json``: how a recording ended.

    Attributes:
        schema_version: Schema version of this file.
        tool, target: Tool and target as asked, ``auto`` resolved.
        state: ``ok`` when there is something to analyze.
        reason: Reason for people; empty when ``ok``.
        started_at: UTC, ISO 8601.
        seconds: Wall time.
        command: argv that ran, secrets left out.
        files: What can be analyzed, relative to the directory.
        ranks: What the ranks said.
        exit_code: Exit code of the user's program where it ended by itself; else ``None``.
        failure: The error that it printed, where that is not 0.
    """

    schema_version: Count = SCHEMA_VERSION
    tool: Tool
    target: ProfileTarget
    state: State
    reason: str = ""
    started_at: Moment
    seconds: Seconds
    command: tuple[str, ...]
    files: tuple[str, ...] = ()
    ranks: tuple[RecordedRank, ...] = ()
    exit_code: Integer | None = None
    failure: str = ""
