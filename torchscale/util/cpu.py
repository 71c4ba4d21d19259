"""The processor's name."""

from __future__ import annotations

import platform
from pathlib import Path


def cpu_name() -> str:
    """Model name of the processor as in ``/proc/cpuinfo``, else as :mod:`platform` reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
