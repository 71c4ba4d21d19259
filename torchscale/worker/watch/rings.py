"""torch's flight recorders of this process: rings of the latest collectives.

There are several. One records gloo; each of NCCL and XCCL has its own, with a function of its own
that dumps it; from torch 2.15 on every backend that is recorded by hooks (``nccl2``) has one, which
the function of the first takes by name. A wheel for CUDA has all these functions, and only the ring
of the backend in use has entries. They are private to torch, and looked for by the form of their
names.
"""

from __future__ import annotations

import ctypes
import pickle
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import torch
import torch.distributed as dist

_FUNCTION = re.compile(r"_dump_([a-z0-9]+)_trace")
_GENERIC = "fr"
"""The function of the ring that gloo writes to, and of those that are asked for by name."""
GLOO = "gloo"
"""Whose collectives its host carries out: torch measures no length of them."""
_RELAXED = 2
"""``CU_STREAM_CAPTURE_MODE_RELAXED``, and HIP's."""
_EXCHANGES = (
    ("libcuda.so.1", "cuThreadExchangeStreamCaptureMode"),
    ("libamdhip64.so", "hipThreadExchangeStreamCaptureMode"),
)
"""Libraries that a process which uses a GPU has loaded, and their functions."""


@dataclass(frozen=True)
class FlightRecorder:
    """One flight recorder.

    Attributes:
        name: The backend that writes to it: ``nccl``, ``gloo``, ``nccl2``.
        dump: Returns its content as a pickle, without stacks.
    """

    name: str
    dump: Callable[[], bytes]

    def content(self) -> dict[str, Any]:
        """What it holds, as torch writes it: ``entries`` and what they refer to.

        Raises:
            Exception: whatever torch raises.
        """
        with queries_allowed():
            dumped = self.dump()
        return dict(pickle.loads(dumped))  # noqa: S301 - of this very process


def rings() -> list[FlightRecorder]:
    """All flight recorders that this process has, also those that nothing is written to."""
    found = []
    for kind, function in _functions().items():
        dump = partial(function, True, False, False)
        found.append(FlightRecorder(GLOO if kind == _GENERIC else kind, dump))
        if kind == _GENERIC and "backend" in (function.__doc__ or ""):
            found += [
                FlightRecorder(name, partial(function, True, False, False, backend=name))
                for name in sorted(backends() - _native())
            ]
    return found


def backends() -> set[str]:
    """Names of the backends of all process groups, as they name themselves."""
    found: set[str] = set()
    if not dist.is_available():
        return found
    for group in list(dist.distributed_c10d._world.pg_map):
        try:
            found |= {str(group._get_backend(kind).name()) for kind in group._device_types}
        except Exception:  # noqa: BLE001, S112 - private to torch: another version, or a backend of others
            continue
    return found


@contextmanager
def queries_allowed() -> Iterator[None]:
    """While open, this thread may ask whether events have passed, also while any thread of the
    process captures a CUDA graph. To dump the ring of a device does so, and would make that capture
    fail.

    Raises:
        RuntimeError: a device is in use, and the driver has no function for it.
    """
    exchange = None
    if _uses_device():
        exchange = _exchange()
    if exchange is None:
        yield
        return
    mode = ctypes.c_int(_RELAXED)
    exchange(ctypes.byref(mode))  # it now holds the mode before
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


def _functions() -> dict[str, Callable[..., bytes]]:
    """Kind → the function that dumps its ring."""
    module = getattr(torch._C, "_distributed_c10d", None) if dist.is_available() else None
    matches = [_FUNCTION.fullmatch(name) for name in dir(module)]
    return {match[1]: getattr(module, match[0]) for match in matches if match is not None}


def _native() -> set[str]:
    """Backends that write to a ring of their own kind, and not to one that is asked for by name."""
    return {GLOO, *_functions()}


def _uses_device() -> bool:
    """Whether this process has begun to use a GPU; does not begin it."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


@lru_cache(maxsize=1)
def _exchange() -> Callable[..., int]:
    """The driver's function that sets how a thread takes part in captures.

    Raises:
        RuntimeError: there is none.
    """
    for library, name in _EXCHANGES:
        try:
            return getattr(ctypes.CDLL(library), name)  # type: ignore[no-any-return]
        except (OSError, AttributeError):
            continue
    raise RuntimeError(f"no driver on {sys.platform} that lets captures of graphs pass")
