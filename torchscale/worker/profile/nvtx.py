"""NVTX ranges and marks, which nsys records: torch's on CUDA, and those of the package ``nvtx`` on
CPUs, where torch has none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from torchscale.errors import MachineError
from torchscale.schema.profiles.nvtx_names import NVTX_PACKAGE
from torchscale.util.installation import library_command


class Nvtx(Protocol):
    """What can be marked. Ranges of a thread nest; those of the process can end in another
    thread."""

    def mark(self, text: str) -> None:
        """A moment."""
        ...

    def push(self, text: str) -> None:
        """Begin a range of this thread."""
        ...

    def pop(self) -> None:
        """End the range of this thread that began last."""
        ...

    def start(self, text: str) -> Any:  # noqa: ANN401 - a handle of the library
        """Begin a range of the process. Returns what :meth:`end` takes."""
        ...

    def end(self, handle: Any) -> None:  # noqa: ANN401
        """End a range of the process."""
        ...


def nvtx_for(device: torch.device) -> Nvtx:
    """The NVTX of this process.

    Raises:
        MachineError: on CPUs, the package ``nvtx`` is not installed.
    """
    if device.type == "cuda":
        return CudaNvtx()
    return HostNvtx()


@contextmanager
def ranged(nvtx: Nvtx, text: str) -> Iterator[None]:
    """A range of this thread around a block."""
    nvtx.push(text)
    try:
        yield
    finally:
        nvtx.pop()


class CudaNvtx:
    """torch's NVTX, which a build with CUDA has."""

    def __init__(self) -> None:
        self._nvtx: Any = torch.cuda.nvtx

    def mark(self, text: str) -> None:
        """A moment."""
        self._nvtx.mark(text)

    def push(self, text: str) -> None:
        """Begin a range of this thread."""
        self._nvtx.range_push(text)

    def pop(self) -> None:
        """End the last range of this thread."""
        self._nvtx.range_pop()

    def start(self, text: str) -> Any:  # noqa: ANN401
        """Begin a range of the process."""
        return self._nvtx.range_start(text)

    def end(self, handle: Any) -> None:  # noqa: ANN401
        """End a range of the process."""
        self._nvtx.range_end(handle)


class HostNvtx:
    """The package ``nvtx``, which needs no CUDA."""

    def __init__(self) -> None:
        try:
            import nvtx  # noqa: PLC0415 - for recordings by nsys on CPUs alone
        except ImportError as error:
            raise MachineError(
                "nsys records CPU ranks through the package nvtx, which cannot be imported here "
                f"({error})",
                hint=f"{library_command(NVTX_PACKAGE)}, or use --tool kineto",
            ) from error
        self._nvtx: Any = nvtx

    def mark(self, text: str) -> None:
        """A moment."""
        self._nvtx.mark(text)

    def push(self, text: str) -> None:
        """Begin a range of this thread."""
        self._nvtx.push_range(text)

    def pop(self) -> None:
        """End the last range of this thread."""
        self._nvtx.pop_range()

    def start(self, text: str) -> Any:  # noqa: ANN401
        """Begin a range of the process."""
        return self._nvtx.start_range(text)

    def end(self, handle: Any) -> None:  # noqa: ANN401
        """End a range of the process."""
        self._nvtx.end_range(handle)
