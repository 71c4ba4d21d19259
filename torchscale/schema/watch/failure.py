"""Why a watched job, or an attempt of it, failed."""

from __future__ import annotations

from enum import Enum

from torchscale.schema.base import Count, Frozen, Integer
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.watch.rank import RankNumber, WorldSize


class FailureCause(str, Enum):
    """What kind of end it was."""

    EXCEPTION = "exception"
    """A process raised what nobody caught."""
    EXIT = "exit_code"
    """A process exited with a code and left no traceback."""
    SIGNAL = "signal"
    """A signal ended a process."""
    OUT_OF_MEMORY = "out_of_memory"
    """An allocation failed, on a device or on the host."""
    OOM_KILL = "oom_kill"
    """The kernel killed a process because memory had run out."""
    LOADER_WORKER = "loader_worker"
    """A worker of a data loader died."""
    COLLECTIVES = "collective_mismatch"
    """Ranks called collectives that do not fit together."""
    PEER_LOST = "peer_lost"
    """Ranks lost the connection to one that left nothing."""
    NOT_JOINED = "not_joined"
    """Ranks gave up waiting for others to join the process group."""
    INTERRUPTED = "interrupted"
    """Somebody ended the job."""


class JobFailure(Frozen):
    """Why a job, or an attempt of it, failed: the end that came first, and not its consequences.

    Attributes:
        cause: What kind of end it was.
        rank: That ended first; ``None`` for a program without ranks, and where not known.
        host: Of that process.
        attempt: Of the job.
        world_size: Ranks of the attempt, as far as that is known.
        exit_code: Of that process; ``None`` where not known, as of one that a signal ended.
        signal: That ended it, as ``SIGKILL``; empty without one.
        error: Class of its exception; empty without one.
        message: Of its exception, without secrets.
        place: Its innermost line of the program, as ``train.py:88 (load_batch)``; empty where not
            known.
        summary: One line: who, what and where.
        evidence: What else is known, a line each.
        autopsy: Collectives that do not fit together, where that is the cause.
    """

    cause: FailureCause
    rank: RankNumber | None = None
    host: str = ""
    attempt: Count = 0
    world_size: WorldSize = 1
    exit_code: Integer | None = None
    signal: str = ""
    error: str = ""
    message: str = ""
    place: str = ""
    summary: str
    evidence: tuple[str, ...] = ()
    autopsy: Autopsy | None = None
