"""Did the kernel end a process for want of memory? Its counters tell; a SIGKILL alone does not."""

from __future__ import annotations

from pathlib import Path

_VMSTAT = Path("/proc/vmstat")
_CGROUP_EVENTS = Path("/sys/fs/cgroup/memory.events")


class OomKills:
    """Counts of the kernel's out-of-memory kills, of the host and of this container, from now on."""

    def __init__(self, vmstat: Path = _VMSTAT, cgroup_events: Path = _CGROUP_EVENTS) -> None:
        self._files = (vmstat, cgroup_events)
        self._at_start = self._counts()

    def since_start(self) -> int:
        """Kills since this object was made; 0 where the kernel does not say."""
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
