"""The processor, as the kernel describes it."""

from __future__ import annotations

import platform
from pathlib import Path

_DESCRIPTION = Path("/proc/cpuinfo")


def cpu_name() -> str:
    """Model name of the processor as in ``/proc/cpuinfo``, else as :mod:`platform` reports it."""
    return _described("model name") or platform.processor() or platform.machine()


def is_virtual() -> bool:
    """Whether it is that of a virtual machine, as x86 processors tell; others do not say."""
    return "hypervisor" in _described("flags").split()


def _described(key: str) -> str:
    """The first value of a key; empty without one."""
    try:
        lines = _DESCRIPTION.read_text().splitlines()
    except OSError:
        return ""
    found = (line.partition(":")[2].strip() for line in lines if line.startswith(key))
    return next(found, "")
