"""The one line that a training script needs to be recorded by torch.profiler. Importing it imports no torch."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from torchscale.names import RECORD_VARIABLE


class Stepper(Protocol):
    """What :func:`step_profiler` gives."""

    def step(self) -> None:
        """Call it once after every training step."""
        ...


class _Nothing:
    def step(self) -> None:
        """Nothing is recorded."""


@contextmanager
def step_profiler() -> Iterator[Stepper]:
    """Let ``torchscale profile --tool kineto -- …`` record some steps of this loop; at other times it does nothing.

    ::

        with torchscale.step_profiler() as profiler:
            for batch in loader:
                train_step(batch)
                profiler.step()
    """
    asked = os.environ.get(RECORD_VARIABLE)
    if not asked:
        yield _Nothing()
        return

    # By name: what imports torchscale must not be held to import torch.
    worker = importlib.import_module("torchscale.worker.step_profiler")
    with worker.profiled_steps(asked) as profiler:
        yield profiler
