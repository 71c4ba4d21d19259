"""What torch's flight recorders keep and time, by the variables that torch reads."""

from __future__ import annotations

import os

import torch
import torch.distributed as dist

DEFAULT_ENTRIES = 2_000
"""Of torch, where nothing else is asked for."""
RING_ENTRIES = 512
"""Collectives that the recorder keeps, unless the job's environment says how many. Reading them
takes 4 ms."""
TIMED_RING_ENTRIES = 2_000
"""The same where lengths are asked for: an entry has to be there still when its length has come."""
_SIZE_VARIABLES = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
"""Of this torch, and of those before 2.8."""
TIMING_VARIABLE = "TORCH_NCCL_ENABLE_TIMING"
"""Has torch measure the length of NCCL's collectives."""
_TRUE = ("1", "y", "yes", "t", "true", "on")
_RENAMED_IN = (2, 8)
"""From this version of torch on a warning is printed where the earlier name is set; before, the later
name is not known."""


def enlarge_ring() -> None:
    """Have the recorders keep :data:`RING_ENTRIES`, where nothing or less is asked for. To be called
    before the first process group is made."""
    least = TIMED_RING_ENTRIES if timing_asked() else RING_ENTRIES
    for name in _SIZE_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdigit() and int(value) < least:
            os.environ[name] = str(least)
    ask_for_ring(least)


def ask_for_ring(entries: int = DEFAULT_ENTRIES) -> None:
    """Have the recorders keep so many entries, unless a variable says how many: up to torch 2.10 they
    keep none by themselves. To be called before the first process group is made."""
    if any(os.environ.get(name) for name in _SIZE_VARIABLES):
        return
    newer, earlier = _SIZE_VARIABLES
    os.environ[newer] = str(entries)
    if _version() < _RENAMED_IN:
        os.environ[earlier] = str(entries)


def timing_asked() -> bool:
    """Whether torch is to measure the length of collectives, by its variable."""
    return os.environ.get(TIMING_VARIABLE, "").lower() in _TRUE


def enable_timing() -> None:
    """Have backends measure the length of their collectives that take no notice of the variable, as
    ``nccl2``. Of groups that exist."""
    if not dist.is_available():
        return
    for group in list(dist.distributed_c10d._world.pg_map):
        try:
            for kind in group._device_types:
                if kind.type != "cpu":
                    group._get_backend(kind)._enable_collectives_timing()  # type: ignore[attr-defined]
        except Exception:  # noqa: BLE001, S112 - private to torch, and not every backend can
            continue


def _version() -> tuple[int, ...]:
    """Of torch: major and minor."""
    return tuple(int(part) for part in torch.__version__.split(".")[:2])


def ring_capacity() -> int:
    """Entries that a recorder keeps, by the variables that torch reads."""
    for name in _SIZE_VARIABLES:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return DEFAULT_ENTRIES
