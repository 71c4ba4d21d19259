"""Which allocator serves the host's memory, and whether it keeps what a step frees.

By default glibc returns freed memory to the kernel, depending on the size of a block and on where it lies in the heap.
A training step frees its activations and gradients; if they were returned, the next step fetches the same pages again,
and the kernel clears each of them. Two equal programs then differ for as long as they run.
"""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

from torchscale.schema.node.environment import HostAllocator

_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
"""Parameters of mallopt(3), from malloc.h."""
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")
_TUNABLES = "glibc.malloc."

_keeps = False
"""Whether :func:`keep_freed_memory` has taken effect in this process."""


class _SymbolInfo(ctypes.Structure):
    """``Dl_info`` of dladdr(3)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def keep_freed_memory() -> None:
    """Make glibc keep freed memory in this process: no block is mapped by itself, and the heap is never trimmed.

    Does nothing where the environment sets glibc's allocator, and with other allocators.
    """
    global _keeps  # noqa: PLW0603 - as the setting itself, it is of the process
    if _is_glibc() and not _environment_decides():
        library = ctypes.CDLL(None)
        _keeps = bool(library.mallopt(_M_MMAP_MAX, 0)) and bool(library.mallopt(_M_TRIM_THRESHOLD, -1))


def host_allocator() -> HostAllocator:
    """The allocator of this process and who set it."""
    if not _is_glibc():
        return HostAllocator(name=_provider())
    name = f"glibc {platform.libc_ver()[1]}"
    if _keeps:
        return HostAllocator(name=name, setting="keep")
    return HostAllocator(name=name, setting="environment" if _environment_decides() else "system")


def _environment_decides() -> bool:
    return any(os.environ.get(name) for name in _VARIABLES) or _TUNABLES in os.environ.get("GLIBC_TUNABLES", "")


def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc" and _provider().startswith("libc.so")


def _provider() -> str:
    """File name of the library that ``malloc`` comes from, a preloaded one included; ``unknown`` where the system does
    not say."""
    try:
        library = ctypes.CDLL(None)
        info = _SymbolInfo()
        address = ctypes.cast(library.malloc, ctypes.c_void_p)
        found = library.dladdr(address, ctypes.byref(info))
    except (OSError, AttributeError):
        return "unknown"
    return Path(os.fsdecode(info.file)).name if found and info.file else "unknown"
