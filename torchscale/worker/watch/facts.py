"""What a rank says of itself: which one it is, where it runs and on what."""

from __future__ import annotations

import os
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime
from time import time as wall_clock
from typing import Any

import torch

from .rings import backends

FIRST_ATTEMPT = "TORCHSCALE_WATCH_FIRST_ATTEMPT"
"""Variable with the number of the first attempt of this run of the command."""
RANK_VARIABLE = "TORCHSCALE_WATCH_RANK"
"""Variable with ``pid:rank`` of the rank's process, for those that it starts."""
_STARTTIME = 19
"""Field of ``/proc/PID/stat`` after the name in parentheses, in ticks since the boot."""


def belongs_to_a_rank() -> bool:
    """Whether this process was started by the rank that it stands for, such as the one that writes
    its checkpoints."""
    pid, _, noted = os.environ.get(RANK_VARIABLE, "").partition(":")
    return pid not in ("", str(os.getpid())) and noted == str(rank())


def restart() -> int:
    """How often torchrun has restarted the job."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") or 0)


def attempt() -> int:
    """Which attempt of the job this is: after those of earlier runs of the command."""
    return int(os.environ.get(FIRST_ATTEMPT, "0") or 0) + restart()


def process_began() -> float:
    """When this process was started, in seconds since the epoch; 0 where the kernel does not say."""
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        began = int(fields[_STARTTIME]) / os.sysconf("SC_CLK_TCK")
        return wall_clock() - (clock_gettime(CLOCK_BOOTTIME) - began)
    except (OSError, ValueError, IndexError):
        return 0.0


def rank() -> int:
    """As torch.distributed numbers it, and before it does, the launcher."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return int(os.environ.get("RANK", "0") or 0)


def world_size() -> int:
    """Ranks of the job."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return int(os.environ.get("WORLD_SIZE", "1") or 1)


def backend() -> str:
    """The backend of torch.distributed, as it names itself: the device's where that has one of its
    own; empty without."""
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return ""
    names = backends()
    if not names:
        return torch.distributed.get_backend()
    return ",".join(sorted(names - {"gloo"} or names))


def cpus() -> list[int]:
    """Logical CPUs that this process may use; empty where the system does not tell."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return []


def of_cuda() -> dict[str, Any]:
    """The device and the allocator's peaks, once the program has started CUDA; does not start it."""
    if not torch.cuda.is_available() or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {}
    index = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(index)
    return {
        "peak_allocated_bytes": torch.cuda.max_memory_allocated(index),
        "peak_reserved_bytes": torch.cuda.max_memory_reserved(index),
        "device_index": index,
        "device_name": properties.name,
        "device_uuid": str(getattr(properties, "uuid", "")),
    }


def device() -> str:
    """``cuda`` where torch has one, else ``cpu``."""
    if torch.cuda.is_available():
        return "cuda"
    return "cpu"
