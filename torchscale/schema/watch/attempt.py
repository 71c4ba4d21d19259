"""What is kept of the attempts and runs of a watched job, once the moments of its ranks are gone."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from torchscale.schema.base import SCHEMA_VERSION, Count, EpochSeconds, Frozen, Name
from torchscale.schema.watch.rank import Nanoseconds
from torchscale.schema.watch.report import WatchedAttempt

MOST_RUNS = 10_000
"""Of one job: one an hour makes a year."""


class CheckpointCall(Frozen):
    """A file that a rank saved or loaded.

    Attributes:
        call: By which function.
        path: Of the file or folder; empty where the call gives none.
        size, inode, modified_ns: Of the file, after a save and before a load; ``None`` where the
            call gives none.
        steps: Optimizer steps that the rank had done in this attempt when the call began.
        began_ns, ended_ns: Nanoseconds since the epoch.
    """

    call: str
    path: str = ""
    size: Count | None = None
    inode: Count | None = None
    modified_ns: Count | None = None
    steps: Count
    began_ns: Nanoseconds
    ended_ns: Nanoseconds

    @property
    def name(self) -> str:
        """The file, or the call where it gives none."""
        return self.path.rstrip("/").rpartition("/")[2] or f"what {self.call} read"


class RankCheckpoints(Frozen):
    """``checkpoints.json`` of a rank.

    Attributes:
        saves: That were completed.
        loads: Before its first step.
        unseen: Modules of the process that save and load in ways of their own.
    """

    saves: tuple[CheckpointCall, ...] = ()
    loads: tuple[CheckpointCall, ...] = ()
    unseen: tuple[str, ...] = ()


class AttemptRecord(Frozen):
    """``attempts/N.json``: an attempt that is over.

    Attributes:
        attempt: What is known of it.
        first_step_at: When its first step ended; ``None`` without one.
        saves: Checkpoints that it completed, the last ones.
    """

    schema_version: Count = SCHEMA_VERSION
    kind: Literal["watched-attempt"] = "watched-attempt"
    attempt: WatchedAttempt
    first_step_at: EpochSeconds | None = None
    saves: tuple[CheckpointCall, ...] = ()


class CommandRun(Frozen):
    """One run of the command.

    Attributes:
        started: Seconds since the epoch.
        ended: ``None`` while it runs, and where it was killed.
        pid, host: Of the process that follows the job.
        namespace: Of its number, as the kernel names it: a container has its own.
    """

    started: EpochSeconds
    ended: EpochSeconds | None = None
    pid: Annotated[int, Field(ge=0, lt=1 << 31, strict=True)] = 0
    host: Name = ""
    namespace: Name = ""


class JobRuns(Frozen):
    """``runs.json``: the runs of the command that are one job."""

    schema_version: Count = SCHEMA_VERSION
    kind: Literal["watched-job"] = "watched-job"
    runs: tuple[CommandRun, ...] = Field(min_length=1, max_length=MOST_RUNS)
