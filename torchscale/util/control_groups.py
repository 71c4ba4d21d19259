"""Control groups of this process, of version 2 and 1: where they are, and the quota of CPU time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NANOSECONDS, _MICROSECONDS = 1e-9, 1e-6
ROOT = Path("/")


@dataclass(frozen=True)
class CpuQuota:
    """The quota of the group that holds this process back most, and how often it did so far.

    Attributes:
        cpus: CPUs of the smallest quota; ``None`` without one.
        held_back_seconds: Time in which runnable processes waited for the next period, of the group
            that had most of it; ``None`` where the kernel counts none. It is the group's, summed
            over its CPUs in version 1 and 2 alike.
    """

    cpus: float | None
    held_back_seconds: float | None


def control_groups(controller: str, root: Path = ROOT) -> Iterator[Path]:
    """Directories of this process's control group and of its parents. ``root`` can be replaced for
    tests."""
    for line in read_text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / (controller if controllers else "")
        group = top / path.lstrip("/")
        yield from (
            level for level in (group, *group.parents) if level == top or top in level.parents
        )


def cpu_quota(root: Path = ROOT) -> CpuQuota:
    """The quota of CPU time now."""
    groups = list(control_groups("cpu", root))
    limits = [limit for limit in map(_cpus, groups) if limit is not None]
    held_back = [seconds for seconds in map(_held_back, groups) if seconds is not None]
    return CpuQuota(min(limits, default=None), max(held_back, default=None))


def read_text(path: Path) -> str:
    """The file's text without blanks around it; empty where it cannot be read."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _cpus(group: Path) -> float | None:
    """CPUs of a quota: ``cpu.max`` holds it and its period, version 1 has a file for each."""
    quota, _, period = read_text(group / "cpu.max").partition(" ")
    if not quota:
        quota, period = (
            read_text(group / "cpu.cfs_quota_us"),
            read_text(group / "cpu.cfs_period_us"),
        )
    if quota.isdigit() and period.isdigit() and int(period):
        return int(quota) / int(period)
    return None


def _held_back(group: Path) -> float | None:
    """Seconds of ``cpu.stat``: ``throttled_usec``, in version 1 ``throttled_time`` in
    nanoseconds."""
    units = {"throttled_usec": _MICROSECONDS, "throttled_time": _NANOSECONDS}
    for line in read_text(group / "cpu.stat").splitlines():
        name, _, value = line.partition(" ")
        if name in units and value.isdigit():
            return int(value) * units[name]
    return None
