"""Facts about the container's limits, the kernel's settings and the user's environment. Does not
import torch."""

from __future__ import annotations

import ctypes
import locale
import os
import resource
import shutil
import tempfile
from pathlib import Path
from time import time as wall_clock

import psutil

from torchscale.schema.base import MOST
from torchscale.schema.node.probe import SystemFacts
from torchscale.util.control_groups import control_groups, cpu_quota, read_text

_CLOCK_ERROR = 5
"""TIME_ERROR of adjtimex(2): the clock is not synchronized."""
_TIMEX_BYTES = 1024
"""More than struct timex has on any architecture (208 bytes on 64-bit Linux). Its first word, the
mode, is 0: read."""
_UNLIMITED = 2**60
"""Version 1 of control groups writes a number near 2**63 where there is no limit."""


def system_facts(root: Path = Path("/")) -> SystemFacts:
    """Limits and settings of this process's system; what it does not report is ``None``. ``root``
    can be replaced for tests."""
    memory_limit, cpu_limit, tasks = _limits(root)
    temporary = Path(os.environ.get("TMPDIR") or "/tmp")  # noqa: S108 - not tempfile's: it falls back without a word
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where there is none
    user_tasks = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    known = [limit for limit in (tasks, user_tasks) if limit is not None and limit >= 0]
    return SystemFacts(
        memory_available_bytes=available_memory(root),
        memory_limit_bytes=memory_limit,
        cpu_limit=cpu_limit,
        tasks_limit=min(known, default=-1),
        load=os.getloadavg()[0],
        temporary=str(temporary),
        temporary_free_bytes=(
            min(shutil.disk_usage(temporary).free, MOST) if temporary.is_dir() else None
        ),
        temporary_error=_write_error(temporary),
        home=str(home),
        home_error=_write_error(home),
        encoding=locale.getpreferredencoding(False),
        locale_error=_locale_error(),
        time=wall_clock(),
        clock_synchronized=_clock_synchronized(),
        local_ports=_local_ports(root / "proc/sys/net/ipv4/ip_local_port_range"),
        governors=_governors(root / "sys/devices/system/cpu"),
        huge_page_defrag=_chosen(root / "sys/kernel/mm/transparent_hugepage/defrag"),
        numa_balancing={"0": False, "1": True}.get(
            read_text(root / "proc/sys/kernel/numa_balancing")
        ),
    )


def _limits(root: Path) -> tuple[int | None, float | None, int | None]:
    """The smallest limits of all groups: bytes of memory, CPUs, processes and threads."""
    memory = [
        _number(group / name) for group in control_groups("memory", root) for name in _MEMORY_LIMITS
    ]
    tasks = [_number(group / "pids.max") for group in control_groups("pids", root)]
    return (
        min((limit for limit in memory if limit is not None), default=None),
        cpu_quota(root).cpus,
        min((limit for limit in tasks if limit is not None), default=None),
    )


_MEMORY_LIMITS = ("memory.max", "memory.limit_in_bytes")
_MEMORY_USED = ("memory.current", "memory.usage_in_bytes")


def available_memory(root: Path = Path("/")) -> int:
    """Bytes that this process can still use: of the host, and of the limits of its control
    groups."""
    left = [
        bound - used
        for group in control_groups("memory", root)
        for maximum, current in zip(_MEMORY_LIMITS, _MEMORY_USED, strict=True)
        if (bound := _number(group / maximum)) is not None
        and (used := _number(group / current)) is not None
    ]
    return max(0, min([int(psutil.virtual_memory().available), *left]))


def _write_error(directory: Path) -> str | None:
    """Why no file can be made in a directory; ``None`` where one can."""
    try:
        with tempfile.TemporaryFile(dir=directory):
            return None
    except OSError as error:
        return error.strerror or str(error)


def _locale_error() -> str | None:
    """Why the locale of LANG and LC_* cannot be used; ``None`` where it can."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "")
    except locale.Error as error:
        return f"{os.environ.get('LC_ALL') or os.environ.get('LANG')}: {error}"
    finally:
        locale.setlocale(locale.LC_ALL, before)
    return None


def _clock_synchronized() -> bool | None:
    try:
        state = int(
            ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.create_string_buffer(_TIMEX_BYTES))
        )
    except (OSError, AttributeError):
        return None
    if state < 0:
        return None
    return state != _CLOCK_ERROR


def _local_ports(path: Path) -> int | None:
    bounds = read_text(path).split()
    if len(bounds) == 2 and all(map(str.isdigit, bounds)):
        return int(bounds[1]) - int(bounds[0]) + 1
    return None


def _governors(cpus: Path) -> tuple[str, ...]:
    """Governors in use, each once; ``powersave (balance_performance)`` where the driver has a
    preference besides."""
    found = []
    for directory in cpus.glob("cpu[0-9]*/cpufreq"):
        governor, preference = (
            read_text(directory / "scaling_governor"),
            read_text(directory / "energy_performance_preference"),
        )
        if preference:
            governor = f"{governor} ({preference})"
        found.append(governor)
    return tuple(sorted({governor for governor in found if governor}))


def _chosen(path: Path) -> str | None:
    """``madvise`` of ``always [madvise] never``."""
    return read_text(path).partition("[")[2].partition("]")[0] or None


def _number(path: Path) -> int | None:
    text = read_text(path)
    if text.isdigit() and int(text) < _UNLIMITED:
        return int(text)
    return None
