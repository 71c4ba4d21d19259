"""Whether the ranks of a running job compute or wait, from the kernel alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from torchscale.features.watch.hang.activity import Activity, activity_of
from torchscale.util.files import read_bounded

SAMPLE_SECONDS = 1.0
"""Over which processor time is compared: clock ticks are 10 ms."""
_SAMPLES = 20
_MAX_MAPS_BYTES = 16 * 2**20
"""A rank with torch has some 2,000 mappings of 100 bytes."""
_SPINNING = (b"/libcuda.so", b"/libamdhip64", b"/libze_loader", b"/libmpi", b"/libucp")
"""Libraries in which a rank that waits may keep its core busy: drivers of devices, MPI and UCX.
gloo sleeps."""


def rank_activities(
    processes: Mapping[int, psutil.Process],
) -> tuple[dict[int, Activity | None], dict[int, float]]:
    """Watch the ranks for ``SAMPLE_SECONDS``.

    Returns:
        What each rank does, ``None`` where that does not say whether it waits; and its processor
        time over wall time.
    """
    before = {rank: _cpu_seconds(process) for rank, process in processes.items()}
    start = time.monotonic()
    runs = dict.fromkeys(processes, 0)
    for _ in range(_SAMPLES):
        time.sleep(SAMPLE_SECONDS / _SAMPLES)
        for rank, process in processes.items():
            runs[rank] += _is_runnable(process)
    elapsed = time.monotonic() - start
    shares = {
        rank: (_cpu_seconds(process) - before[rank]) / elapsed
        for rank, process in processes.items()
    }
    if any(_may_spin(process.pid) for process in processes.values()):
        return dict.fromkeys(processes), shares
    return {rank: activity_of(runs[rank] / _SAMPLES, shares[rank]) for rank in processes}, shares


def _is_runnable(process: psutil.Process) -> bool:
    """Whether its main thread runs or waits for a core."""
    try:
        return bool(process.status() == psutil.STATUS_RUNNING)
    except psutil.Error:
        return False


def _may_spin(pid: int) -> bool:
    """Whether the process has loaded what may wait without sleeping; also where that cannot be
    read."""
    try:
        maps = read_bounded(Path(f"/proc/{pid}/maps"), _MAX_MAPS_BYTES)
    except OSError:
        return True
    return any(library in maps for library in _SPINNING)


def _cpu_seconds(process: psutil.Process) -> float:
    """Processor time that a process has used; 0 where it cannot be read."""
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
