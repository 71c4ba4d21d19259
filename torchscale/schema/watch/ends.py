"""What processes of a watched job leave as they end or wait (``worker/watch/ends.py``,
``launcher.py``, ``crash.py`` and ``waits.py`` write it, without these models)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from torchscale.schema.base import Count, EpochSeconds, Frozen, Integer, Name
from torchscale.schema.watch.rank import RankNumber, WorldSize

_MOST_FRAMES = 200
Text = Annotated[str, Field(max_length=5_000)]
Frame = tuple[Text, Count, Text]
"""File, line and function."""


class JobProcess(Frozen):
    """Which process it is.

    Attributes:
        pid, host: Of the process.
        rank, local_rank, world_size: As far as they were known.
        attempt: Of the job, over all runs of the command.
        of_rank: PID of the rank that started it; ``None`` for what may be a rank itself.
        program: The first words of its command line.
        frames: Of its Python stack, outermost first.
    """

    format: Literal[1]
    pid: Count
    host: Name
    rank: RankNumber | None = None
    local_rank: RankNumber | None = None
    world_size: WorldSize | None = None
    attempt: RankNumber = 0
    of_rank: Count | None = None
    program: tuple[Text, ...] = Field(default=(), max_length=8)
    frames: tuple[Frame, ...] = Field(default=(), max_length=_MOST_FRAMES)


class ChildEnd(Frozen):
    """What a launcher says of a process of its own that failed.

    Attributes:
        pid: Of that process.
        index: Its number among those that the launcher started.
        exit_code: Its own, the negative number of a signal; ``None`` where it raised.
    """

    pid: Count
    index: RankNumber
    exit_code: Integer | None = None


class ProcessEnd(JobProcess):
    """A file in ``ends/``.

    Attributes:
        kind: ``raised`` by the process itself, ``exited`` by what started it, ``crash`` where a
            signal of a fault ended it, ``gone`` where somebody saw that it was there no more.
        time: When it was written, in seconds since the epoch.
        type, text: Of the exception, as Python prints it.
        child: Of the exception that a launcher raises.
        exit_code: The negative number of a signal.
    """

    kind: Literal["raised", "exited", "crash", "gone"]
    time: EpochSeconds
    type: Text = ""
    text: Text = ""
    child: ChildEnd | None = None
    exit_code: Integer | None = None


class ProcessWait(JobProcess):
    """A file in ``waits/``.

    Attributes:
        what: ``group`` for all ranks of the job, ``rendezvous`` for torchrun on other nodes.
        since: Seconds since the epoch.
        address: Where they meet; empty where not known.
        least_nodes, most_nodes: That a rendezvous takes.
        joined_nodes: So far; ``None`` where not known.
        node: Number of this one, where the command gave it.
        local_world_size: Ranks that torchrun will start here.
    """

    what: Literal["group", "rendezvous"]
    since: EpochSeconds
    address: Text = ""
    least_nodes: Count | None = None
    most_nodes: Count | None = None
    joined_nodes: Count | None = None
    node: Count | None = None
    local_world_size: Count | None = None
