"""What a rank says of itself: which one it is, where it runs and on what."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from time import CLOCK_BOOTTIME, clock_gettime
from typing import Any

import torch

from . import clock
from .ends import FIRST_ATTEMPT, RANK_VARIABLE
from .program_thread import is_in_thread
from .ring_settings import timing_asked
from .rings import backends, rings

_MOST_DIGITS = 7
"""Of the number of a rank: ten million."""
_SHOWN = 50
"""Characters of a variable in a reason."""
_STARTTIME = 19
"""Field of ``/proc/PID/stat`` after the name in parentheses, in ticks since the boot."""


def of_process(start_ns: int) -> dict[str, Any]:
    """What is known of this process as it begins to collect, with the time that its marks count
    from.

    Raises:
        ValueError: a variable is not what a launcher sets.
    """
    return {
        "rank": rank(),
        "world_size": world_size(),
        "local_world_size": local_world_size(),
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "start_ns": start_ns,
        "began": clock.now(),
        "process_began": process_began(),
        "restart": restart(),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "backend": backend(),
        "device": device(),
        "has_recorder": bool(rings()),
        "is_timed": timing_asked(),
        "is_in_thread": is_in_thread(),
        "threads": torch.get_num_threads(),
        "cpus": cpus(),
    }


def belongs_to_a_rank() -> bool:
    """Whether this process was started by the rank that it stands for, such as the one that writes
    its checkpoints."""
    _, _, noted = os.environ.get(RANK_VARIABLE, "").partition(":")
    return _is_started_by_a_rank() and noted == f"{rank()}:{world_size()}"


def is_launched_as_rank() -> bool:
    """Whether a launcher has made this process one rank of several."""
    try:
        is_one_of_several = "RANK" in os.environ and _number("WORLD_SIZE", 1) > 1
    except ValueError:
        return False
    return is_one_of_several and not _is_started_by_a_rank()


def _is_started_by_a_rank() -> bool:
    pid, _, _ = os.environ.get(RANK_VARIABLE, "").partition(":")
    return pid not in ("", str(os.getpid()))


def claim_rank() -> None:
    """Have processes that this one starts know which rank it is."""
    os.environ[RANK_VARIABLE] = f"{os.getpid()}:{rank()}:{world_size()}"


def restart() -> int:
    """How often torchrun has restarted the job."""
    return _number("TORCHELASTIC_RESTART_COUNT", 0)


def attempt() -> int:
    """Which attempt of the job this is: after those of earlier runs of the command, and after that of
    a process which trained alone before it started the ranks."""
    return _number(FIRST_ATTEMPT, 0) + restart() + _is_started_by_a_rank()


def process_began() -> float:
    """When this process was started, in seconds since the epoch; 0 where the kernel does not say."""
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        began = int(fields[_STARTTIME]) / os.sysconf("SC_CLK_TCK")
        return clock.now() - (clock_gettime(CLOCK_BOOTTIME) - began)
    except (OSError, ValueError, IndexError):
        return 0.0


def rank() -> int:
    """As torch.distributed numbers it, and before it does, the launcher.

    Raises:
        ValueError: the variable is no such number.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    return _number("RANK", 0)


def world_size() -> int:
    """Ranks of the job.

    Raises:
        ValueError: the variable is no such number.
    """
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_world_size()
    return _number("WORLD_SIZE", 1)


def has_group() -> bool:
    """Whether the program has made its process group."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def local_world_size() -> int:
    """Ranks on this host.

    Raises:
        ValueError: the variable is no such number.
    """
    return _number("LOCAL_WORLD_SIZE", world_size())


def _number(variable: str, otherwise: int) -> int:
    text = os.environ.get(variable) or str(otherwise)
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise ValueError(f"{variable}={text[:_SHOWN]!r}: expected a number from 0 to 9,999,999")
    return int(text)


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


def cuda_index() -> int | None:
    """The CUDA device of the calling thread, once the program has started CUDA; does not start
    it."""
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return None
    return torch.cuda.current_device()


def of_cuda(index: int | None) -> dict[str, Any]:
    """A device of this process, and the peaks of torch's allocator on it; nothing without a
    device."""
    if index is None:
        return {}
    properties = torch.cuda.get_device_properties(index)
    memory = allocator(index)
    return {
        "peak_allocated_bytes": memory.get("allocated", {}).get("peak"),
        "peak_reserved_bytes": memory.get("reserved", {}).get("peak"),
        "device_memory_bytes": properties.total_memory,
        "device_index": index,
        "device_name": properties.name,
        "device_uuid": str(getattr(properties, "uuid", "")),
    }


def allocator(index: int) -> dict[str, dict[str, int]]:
    """``allocated`` and ``reserved`` bytes of torch's allocator on a device: ``current`` and
    ``peak`` of each. Nothing of an allocator that does not count."""
    try:
        found = torch.cuda.memory_stats_as_nested_dict(index)
        return {name: found[f"{name}_bytes"]["all"] for name in ("allocated", "reserved")}
    except Exception:  # noqa: BLE001 - an allocator of the program raises what it likes
        return {}


def device() -> str:
    """``cuda`` once the program uses it, else ``cpu``. Not asked is whether there is one: torch notes
    that in a way which keeps processes that are forked later from using it."""
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "cuda"
    return "cpu"
