"""Which allocator serves the host's memory, and whether it keeps what a step frees.

By default glibc returns freed memory to the kernel, depending on the size of a block and on where
it lies in the heap. A training step frees its activations and gradients; if they were returned, the
next step fetches the same pages again, and the kernel clears each of them. Two equal programs then
differ for as long as they run.
"""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path

from torchscale.schema.node.environment import HostAllocator
from torchscale.worker.probe.system import available_memory

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_M_MMAP_MAX = -4
"""Parameters of mallopt(3), from malloc.h."""
_VARIABLES = (
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_MMAP_MAX_",
)
_TUNABLES = "glibc.malloc."

_MOST_RESERVED = 3 * 2**30
"""Maximum memory reserved by a rank for a recording. To touch a GiB takes 0.1 to 0.5 s, and some
seconds where a hypervisor has to find it."""
_RESERVED_SHARE = 0.4
"""Share of the available memory, by all ranks of a node: without a reserve the recording would take
as much, step by step."""
_LARGE_BYTES = 128 * 1024
"""glibc's own threshold at the start; it would rise with every mapped block that is freed."""
_MOST_MAPPED = 65_536
"""glibc's default, and the kernel's limit on the mappings of a process."""

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
    """Make glibc keep freed memory in this process: no block is mapped by itself, and the heap is
    never trimmed.

    Does nothing where the environment sets glibc's allocator, and with other allocators.
    """
    global _keeps  # noqa: PLW0603 - as the setting itself, it is of the process
    if _is_glibc() and not _environment_decides():
        library = ctypes.CDLL(None)
        _keeps = bool(library.mallopt(_M_MMAP_MAX, 0)) and bool(
            library.mallopt(_M_TRIM_THRESHOLD, -1)
        )


def prepare_for_profiler(expected_bytes: int = 0) -> None:
    """Keep the profiler's own memory from slowing the operators that it records.

    The profiler keeps small blocks for every operator until the recording ends. They land in what
    tensors have freed, so that the next step's tensors no longer fit there: every step then takes
    new memory, about as much as its large tensors have. Where the kernel or a hypervisor must find
    pages that nobody has used yet, operators take up to ten times as long from some step on.

    Where the heap keeps freed memory, it gets these pages in advance, so that steps cost what they
    cost without the profiler. Blocks for which there is no place any more are mapped one by one:
    they go back to the kernel in every step, at a cost that stays the same.

    Does nothing where the environment sets glibc's allocator, and with other allocators.

    Args:
        expected_bytes: What the recording will take; at most :data:`_MOST_RESERVED` is taken in
            advance.
    """
    if not _is_glibc() or _environment_decides():
        return
    library = ctypes.CDLL(None)
    if _keeps and expected_bytes:
        share = _RESERVED_SHARE * available_memory() / int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        _reserve(library, min(expected_bytes, _MOST_RESERVED, int(share)))
    library.mallopt(_M_MMAP_MAX, _MOST_MAPPED)
    library.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)


def _reserve(library: ctypes.CDLL, size: int) -> None:
    """Let the heap grow by this, and touch every page of it."""
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = (ctypes.c_size_t,)
    library.free.argtypes = (ctypes.c_void_p,)
    block = library.malloc(size)
    if block:
        ctypes.memset(block, 1, size)
        library.free(block)


def host_allocator() -> HostAllocator:
    """The allocator of this process and who set it."""
    if not _is_glibc():
        return HostAllocator(name=_provider())
    name = f"glibc {platform.libc_ver()[1]}"
    if _keeps:
        return HostAllocator(name=name, setting="keep")
    if _environment_decides():
        return HostAllocator(name=name, setting="environment")
    return HostAllocator(name=name, setting="system")


def _environment_decides() -> bool:
    return any(os.environ.get(name) for name in _VARIABLES) or _TUNABLES in os.environ.get(
        "GLIBC_TUNABLES", ""
    )


def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc" and _provider().startswith("libc.so")


def _provider() -> str:
    """File name of the library that ``malloc`` comes from, a preloaded one included; ``unknown``
    where the system does not say."""
    try:
        library = ctypes.CDLL(None)
        info = _SymbolInfo()
        address = ctypes.cast(library.malloc, ctypes.c_void_p)
        found = library.dladdr(address, ctypes.byref(info))
    except (OSError, AttributeError):
        return "unknown"
    if found and info.file:
        return Path(os.fsdecode(info.file)).name
    return "unknown"
