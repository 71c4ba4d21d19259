"""What the kernel counts of this process's input and output, of a disk's, and of what it has still to
write."""

from __future__ import annotations

import os
import re
from pathlib import Path

_PROC = Path("/proc")
_BLOCK_DEVICES = Path("/sys/dev/block")
_KIBIBYTE = 1024
_SECTOR_BYTES = 512
"""In which the kernel counts, whatever the disk's own sectors are."""
_SECTORS_READ, _SECTORS_WRITTEN = 2, 6
"""Fields of a block device's ``stat``."""


def device_read_bytes(proc: Path = _PROC) -> int | None:
    """Bytes that this process has had fetched from block devices, since it began; what the page
    cache had is not among them. ``None`` where the kernel does not count."""
    return _count(proc / "self" / "io", "read_bytes")


def transferred_bytes(proc: Path = _PROC) -> int:
    """Bytes that this process has read and written since it began, from and to the page cache; 0
    where the kernel does not count."""
    counts = (_count(proc / "self" / "io", name) for name in ("rchar", "wchar"))
    return sum(count or 0 for count in counts)


def disk_bytes(directory: Path, devices: Path = _BLOCK_DEVICES) -> int | None:
    """Bytes that were read from and written to the disk of a directory since the machine began, by
    whomever. ``None`` for a file system that is not on one block device, as of a network."""
    try:
        number = directory.stat().st_dev
        place = devices / f"{os.major(number)}:{os.minor(number)}" / "stat"
        counts = [int(count) for count in place.read_text().split()]
        return _SECTOR_BYTES * (counts[_SECTORS_READ] + counts[_SECTORS_WRITTEN])
    except (OSError, ValueError, IndexError):
        return None


def unwritten_bytes(proc: Path = _PROC) -> int:
    """Bytes of this machine's files that are in memory and not yet on their disks; 0 where the
    kernel does not say."""
    counts = (_count(proc / "meminfo", name) for name in ("Dirty", "Writeback", "NFS_Unstable"))
    return _KIBIBYTE * sum(count or 0 for count in counts)


def _count(path: Path, name: str) -> int | None:
    try:
        found = re.search(rf"^{name}:\s*(\d+)", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    if found is None:
        return None
    return int(found[1])
