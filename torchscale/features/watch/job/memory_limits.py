"""How much memory the ranks of a watched job may take."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from pathlib import Path

import psutil

from torchscale.features.watch.analysis.everyday.memory import MemoryLimits
from torchscale.features.watch.job.stream import RankStream
from torchscale.util.control_groups import ROOT, control_groups, read_text


def memory_limits(streams: Iterable[RankStream], root: Path = ROOT) -> MemoryLimits:
    """Of the devices, and of this host: others are not known. The command and the ranks that it
    starts are in the same control groups."""
    groups = [
        int(text)
        for group in control_groups("memory", root)
        for name in ("memory.max", "memory.limit_in_bytes")
        if (text := read_text(group / name)).isdigit()
    ]
    return MemoryLimits(
        device=tuple(stream.use.device_memory_bytes for stream in streams),
        host={socket.gethostname(): min([int(psutil.virtual_memory().total), *groups])},
    )
