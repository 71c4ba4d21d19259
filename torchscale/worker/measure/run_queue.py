"""Time that threads waited for a core although they could have run, from Linux's
``/proc/PID/task/TID/schedstat``.

The kernel counts it for every thread in nanoseconds (Documentation/scheduler/sched-stats.rst): time
on a core, time waiting in a run queue, number of time slices. A sleeping or blocked thread waits in
none.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

import psutil

from torchscale.schema.launch.rank import RunQueue

_PROC = Path("/proc")
_NANOSECONDS = 1e-9


class RunQueueMeter:
    """Waiting time from construction to :meth:`read`, of this process and of its children."""

    def __init__(self) -> None:
        self._threads = thread_waits(_processes())
        self._main = main_thread("self")

    def read(self) -> RunQueue | None:
        """Seconds since construction; ``None`` where the kernel does not count them (no
        ``CONFIG_SCHED_INFO``, another system). A thread that has ended since is not counted."""
        main = main_thread("self")
        if self._main is None or main is None:
            return None
        waited = (  # another thread may have the number of one that has ended
            max(0, now - self._threads.get(tid, 0))
            for tid, now in thread_waits(_processes()).items()
        )
        return RunQueue(
            seconds=sum(waited) * _NANOSECONDS,
            main_seconds=max(0, main[1] - self._main[1]) * _NANOSECONDS,
            main_cpu_seconds=max(0, main[0] - self._main[0]) * _NANOSECONDS,
        )


def main_thread(process: int | str) -> tuple[int, int] | None:
    """Nanoseconds that the first thread of a process, by its number or ``self``, spent on a core,
    and waiting for one; ``None`` where the kernel does not count them, or it has ended."""
    return _schedstat(_PROC / str(process) / "schedstat")


def _processes() -> list[int]:
    """This process and its descendants: the loader's processes among them."""
    return [os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))]


def thread_waits(pids: Iterable[int]) -> dict[int, int]:
    """Nanoseconds that each living thread of these processes waited for a core, by its number."""
    waited = {}
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            for task in (_PROC / str(pid) / "task").iterdir():
                times = _schedstat(task / "schedstat")
                if times is not None:
                    waited[int(task.name)] = times[1]
    return waited


def _schedstat(path: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = path.read_text().split()
        return int(fields[0]), int(fields[1])
    return None
