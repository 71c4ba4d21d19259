"""The phases of a training step as NVTX ranges, for recordings by nsys."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from torchscale.schema.profiles.nvtx_names import COLLECTION
from torchscale.worker.measure.phases import Phase
from torchscale.worker.profile.nvtx import Nvtx

_NAMES = {
    Phase.BUFFERS: "torchscale.buffer_sync",
    Phase.FORWARD: "torchscale.forward",
    Phase.GRADIENTS: "torchscale.backward",
    Phase.SYNC: "torchscale.gradient_sync",
    Phase.BUBBLE: "torchscale.bubble",
    Phase.OPTIMIZER: "torchscale.optimizer",
}
"""Names of ranges by phase; the wait for data has a range around the loader's call."""


class PhaseRanges:
    """One range at a time, from the beginning of a phase to the beginning of the next. Ranges of
    the process and not of a thread: on CUDA, the last gradient is seen in a thread of the backward
    pass."""

    def __init__(self, nvtx: Nvtx) -> None:
        self._nvtx = nvtx
        self._phase: Phase | None = None
        self._handle: object | None = None
        self._collection: object | None = None

    def begin(self, phase: Phase) -> None:
        """End the phase that runs and begin another."""
        self._close()
        self._phase = phase
        self._open()

    def end(self) -> None:
        """End the phase that runs."""
        self._close()
        self._phase = None

    @contextmanager
    def interrupted(self) -> Iterator[None]:
        """The phase's range ends before a block in which the rank waits, and begins again after
        it."""
        self._close()
        try:
            yield
        finally:
            self._open()

    @contextmanager
    def collections_marked(self) -> Iterator[None]:
        """Ranges around Python's garbage collections, too."""
        gc.callbacks.append(self._note_collection)
        try:
            yield
        finally:
            gc.callbacks.remove(self._note_collection)

    def _open(self) -> None:
        name = None
        if self._phase is not None:
            name = _NAMES.get(self._phase)
        if name is not None and self._handle is None:
            self._handle = self._nvtx.start(name)

    def _close(self) -> None:
        if self._handle is not None:
            self._nvtx.end(self._handle)
            self._handle = None

    def _note_collection(self, phase: str, info: dict[str, int]) -> None:
        del info
        if phase == "start":
            self._collection = self._nvtx.start(COLLECTION)
        elif self._collection is not None:
            self._nvtx.end(self._collection)
            self._collection = None
