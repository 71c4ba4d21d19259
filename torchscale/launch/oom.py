"""Counts the kernel's out-of-memory kills, which distinguish them from any other SIGKILL."""

from __future__ import annotations

from pathlib import Path

_VMSTAT = Path("/proc/vmstat")
_CGROUP_EVENTS = Path("/sys/fs/cgroup/memory.events")


class OomKills:
    """The kernel's out-of-memory kills on the host and in this container since construction."""

    def __init__(self, vmstat: Path = _VMSTAT, cgroup_events: Path = _CGROUP_EVENTS) -> None:
        self._files = (vmstat, cgroup_events)
        self._at_start = self._counts()

    def since_start(self) -> int:
        """Kills since this object was made; 0 where the kernel does not report them."""
        return max(now - before for now, before in zip(self._counts(), self._at_start, strict=True))

    def _counts(self) -> tuple[int, ...]:
        return tuple(_counter(path, "oom_kill") for path in self._files)


def _counter(path: Path, name: str) -> int:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return 0
