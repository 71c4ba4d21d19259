"""What the kernel counts of this process."""

from __future__ import annotations

import re
from pathlib import Path

_PROC = Path("/proc/self")


def device_read_bytes(proc: Path = _PROC) -> int | None:
    """Bytes that this process has had fetched from block devices, since it began; what the page
    cache had is not among them. ``None`` where the kernel does not count."""
    try:
        found = re.search(r"^read_bytes: (\d+)$", (proc / "io").read_text(), re.MULTILINE)
    except OSError:
        return None
    if found is None:
        return None
    return int(found[1])
