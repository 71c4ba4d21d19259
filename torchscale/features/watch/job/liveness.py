"""Whether the command that follows a watched job is still there: one that was killed writes no end.

Where its number means something, the process decides. From another host or container its sign of
life does: it touches ``runs.json`` at every look at the ranks' files.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

import psutil

from torchscale.schema.watch.attempt import CommandRun

RUNS = "runs.json"
"""In the job's folder: its runs, and by its time of change the last sign of life."""
SILENT_SECONDS = 120.0
"""Without a sign of life, after which a command elsewhere is gone. Signs are 2 s apart; a host may see
the time of a file on a network file system a minute late, and a judgement of very many ranks takes
some seconds."""
_SAME_PROCESS_SECONDS = 2.0
"""By which the start of a process and that of its run may differ."""


def this_run(started: float) -> CommandRun:
    """A run of the command that this process follows.

    Args:
        started: Seconds since the epoch.
    """
    return CommandRun(
        started=started, pid=os.getpid(), host=socket.gethostname(), namespace=_namespace()
    )


def is_followed(run: CommandRun) -> bool | None:
    """Whether the process that follows a run is there; ``None`` where its number is that of another
    host or container."""
    if (run.host, run.namespace) != (socket.gethostname(), _namespace()):
        return None
    try:
        process = psutil.Process(run.pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        return process.create_time() <= run.started + _SAME_PROCESS_SECONDS
    except psutil.Error:
        return False


def give_sign(directory: Path) -> None:
    """Show that the job in ``directory`` is followed; also on a full disk."""
    with contextlib.suppress(OSError):
        os.utime(directory / RUNS)


def gave_sign(path: Path, now: float) -> bool:
    """Whether a file was touched lately.

    Args:
        path: Of the file; one that is missing was not.
        now: Seconds since the epoch.
    """
    try:
        return now - path.stat().st_mtime <= SILENT_SECONDS
    except OSError:
        return False


def _namespace() -> str:
    """Within which numbers of processes are told apart, ``pid:[4026531836]``; empty where the kernel
    does not say."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""
