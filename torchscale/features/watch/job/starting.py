"""Why a watched job does not begin: which of its processes wait, for whom and where."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import psutil

from torchscale.features.watch.ends.files import read_waits
from torchscale.features.watch.hang.evidence import process_condition
from torchscale.features.watch.hang.joining import (
    Joining,
    Meeting,
    explain_joining,
    explain_meeting,
)
from torchscale.features.watch.hang.py_spy import py_spy_stacks
from torchscale.features.watch.hang.rank_activity import rank_activities
from torchscale.features.watch.hang.stacks import place
from torchscale.features.watch.hang.watched_job import ranks_below
from torchscale.schema.launch.hang import Autopsy, RankCondition, StackFrame
from torchscale.schema.watch.ends import ProcessWait

_BUSY_SHARE = 0.5
"""Of a core: a rank that uses as much compiles, loads or reads, and will come. One that waits for a
disk uses little, and is shown with its line."""
_SAME_PROCESS_SECONDS = 2.0
"""By which the start of a process may seem later than its wait began: another one with its number
has begun much later."""
_MOST_LOOKED_AT = 16


def present_waits(directory: Path, attempt: int) -> list[ProcessWait]:
    """Waits that go on, the longest first, of an attempt or a later one: as far as this host can
    tell."""
    return [wait for wait in read_waits(directory) if wait.attempt >= attempt and _is_there(wait)]


def why_not_begun(
    waits: Collection[ProcessWait],
    begun: Collection[int],
    ended: Mapping[int, str],
    parent: int | None = None,
) -> Autopsy | None:
    """Who waits for whom; ``None`` where nobody does, and where those that are waited for compute:
    a slow start is no hang.

    Args:
        waits: That go on.
        begun: Ranks that have joined and gone on.
        ended: Ranks that have ended → how.
        parent: PID of the program; ``None`` to look below this process.
    """
    groups = [wait for wait in waits if wait.what == "group" and wait.rank is not None]
    if groups:
        return _of_ranks(groups, begun, ended, parent or os.getpid())
    meetings = [wait for wait in waits if wait.what == "rendezvous"]
    if not meetings:
        return None
    first = meetings[0]
    return explain_meeting(
        Meeting(first.address, first.least_nodes, first.most_nodes, first.joined_nodes, first.node)
    )


def _of_ranks(
    waits: Iterable[ProcessWait], begun: Collection[int], ended: Mapping[int, str], parent: int
) -> Autopsy | None:
    joining = {
        wait.rank: Joining(
            wait.rank,
            max(wait.world_size or 1, wait.rank + 1),
            wait.address,
            tuple(
                StackFrame(file=file, line=line, function=name) for file, line, name in wait.frames
            ),
        )
        for wait in waits
        if wait.rank is not None and wait.rank not in begun
    }
    known = {*joining, *ended, *begun}
    others = {rank: found for rank, found in ranks_below(parent).items() if rank not in known}
    if others:
        looked_at = dict(sorted(others.items())[:_MOST_LOOKED_AT])
        _, shares = rank_activities(looked_at)
        if any(share > _BUSY_SHARE for share in shares.values()):
            return None
    said = {}
    stacks = py_spy_stacks({rank: found.pid for rank, found in sorted(others.items())})
    for rank, process in others.items():
        said[rank] = _doing(process, stacks.get(rank, ()))
    return explain_joining(list(joining.values()), said, ended, begun=begun)


def _doing(process: psutil.Process, frames: tuple[StackFrame, ...]) -> str:
    """``pid 4711 is at load.py:12 `read```."""
    if process_condition(process) is RankCondition.STOPPED:
        return f"pid {process.pid} is stopped by a signal or a debugger"
    where = place(frames)
    if where:
        return f"pid {process.pid} is at {where}"
    return f"pid {process.pid} is idle"


def _is_there(wait: ProcessWait) -> bool:
    if wait.host != socket.gethostname():
        return True
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(wait.pid)
        is_it = process.create_time() <= wait.since + _SAME_PROCESS_SECONDS
        return is_it and process_condition(process) is not RankCondition.GONE
    return False
