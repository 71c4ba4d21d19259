"""Processor time of the ranks of a user's script and of their cores, read from outside while they
run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from torchscale.schema.launch.rank import HostLoad, RunQueue
from torchscale.util.optional import complete
from torchscale.worker.measure.run_queue import main_thread, thread_waits
from torchscale.worker.watch import clock

_SECONDS = 0.5
"""Between two readings: between them processor time is taken to grow evenly."""
_NANOSECONDS = 1e-9
_MAX_READINGS = 20_000
"""Beyond it every other one is dropped: of a launch of hours."""


@dataclass(frozen=True)
class _Reading:
    """At a moment: seconds that each core was busy, was interrupted or stolen, and was stolen; that
    each process used; and that its threads waited for a core, where the kernel counts it."""

    time: float
    busy: Mapping[int, float]
    interrupted: Mapping[int, float]
    stolen: Mapping[int, float]
    used: Mapping[int, float]
    queues: Mapping[int, RunQueue]


class _Queues:
    """What threads of processes waited for a core since each was first seen. A thread that has
    ended keeps what it had waited."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._waited: dict[int, int] = {}

    def read(self, pid: int) -> RunQueue | None:
        """Of a process and those that its main thread started; ``None`` where the kernel does not
        count it."""
        main = main_thread(pid)
        if main is None:
            return None
        for thread, now in thread_waits([pid, *_children(pid)]).items():
            before = self._seen.get(thread, 0)
            self._waited[pid] = self._waited.get(pid, 0) + max(0, now - before)
            self._seen[thread] = now
        used, waited = main
        return RunQueue(
            seconds=self._waited.get(pid, 0) * _NANOSECONDS,
            main_seconds=waited * _NANOSECONDS,
            main_cpu_seconds=used * _NANOSECONDS,
        )


class HostLoadSamples:
    """Readings of the machine and of the ranks' processes."""

    def __init__(self) -> None:
        self._readings: list[_Reading] = []
        self._queues = _Queues()

    def sample(self, pids: Collection[int]) -> None:
        """Read now, if the last reading is old enough."""
        now = clock.now()
        if self._readings and now - self._readings[-1].time < _SECONDS:
            return
        cores = _cores()
        used = {pid: seconds for pid in pids if (seconds := _used_by(pid)) is not None}
        queues = {pid: queue for pid in pids if (queue := self._queues.read(pid)) is not None}
        self._readings.append(_Reading(now, *cores, used, queues))
        if len(self._readings) > _MAX_READINGS:
            del self._readings[1::2]

    def between(
        self, start: float, end: float, *, pid: int, cpus: Collection[int], pinned: bool
    ) -> HostLoad:
        """Load of a rank's cores between two moments, in seconds since the epoch.

        Args:
            start, end: First and last moment of the measurement.
            pid: The rank's process.
            cpus: Its cores.
            pinned: Whether it is bound to them.

        ``cores`` is 0, as of a load that was not read, where no reading knows the process.
        """
        known = [reading for reading in self._readings if pid in reading.used]
        wall = max(0.0, end - start)
        if len(known) < 2 or not cpus:
            return HostLoad(
                wall_seconds=wall, busy_seconds=0, process_seconds=0, cores=0, pinned=False
            )
        times = [reading.time for reading in known]

        def grown(values: list[float]) -> float:
            first, last = np.interp([start, end], times, values)
            return max(0.0, float(last - first))

        return HostLoad(
            wall_seconds=wall,
            busy_seconds=grown([_of(reading.busy, cpus) for reading in known]),
            process_seconds=grown([reading.used[pid] for reading in known]),
            cores=len(cpus),
            pinned=pinned,
            interrupted_seconds=grown([_of(reading.interrupted, cpus) for reading in known]),
            stolen_seconds=grown([_of(reading.stolen, cpus) for reading in known]),
            run_queue=_waits([reading.queues.get(pid) for reading in known], grown),
        )


def _waits(
    queues: Sequence[RunQueue | None], grown: Callable[[list[float]], float]
) -> RunQueue | None:
    """What waiting has grown by; ``None`` where a reading lacks it."""
    known = complete(queues)
    if not known:
        return None
    return RunQueue(
        seconds=grown([queue.seconds for queue in known]),
        main_seconds=grown([queue.main_seconds for queue in known]),
        main_cpu_seconds=grown([queue.main_cpu_seconds for queue in known]),
    )


def _of(seconds: Mapping[int, float], cpus: Collection[int]) -> float:
    return sum(seconds.get(cpu, 0.0) for cpu in cpus)


def _cores() -> tuple[dict[int, float], dict[int, float], dict[int, float]]:
    """Seconds that each core was busy, those of them in interrupts or stolen, and those stolen."""
    busy, interrupted, stolen = {}, {}, {}
    for cpu, times in enumerate(psutil.cpu_times(percpu=True)):
        taken = sum(getattr(times, name, 0.0) for name in ("irq", "softirq", "steal"))
        worked = sum(getattr(times, name, 0.0) for name in ("user", "nice", "system"))
        busy[cpu], interrupted[cpu] = worked + taken, taken
        stolen[cpu] = getattr(times, "steal", 0.0)
    return busy, interrupted, stolen


def _used_by(pid: int) -> float | None:
    """Processor time of a process and of those that its main thread started, such as loaders;
    ``None`` where it has ended."""
    try:
        own = psutil.Process(pid).cpu_times()
    except psutil.Error:
        return None
    total = float(own.user + own.system + own.children_user + own.children_system)
    for child in _children(pid):
        with contextlib.suppress(psutil.Error):
            times = psutil.Process(child).cpu_times()
            total += float(times.user + times.system)
    return total


def _children(pid: int) -> list[int]:
    """From the kernel's own list, since a search through all processes takes milliseconds."""
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    return [int(word) for word in text.split()]
