"""``step_profiler()``: lets ``torchscale profile`` record a training script by torch.profiler. Does
not import torch."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

RECORD_VARIABLE = "TORCHSCALE_RECORD"
"""Environment variable by which ``torchscale profile`` asks a training script for a recording."""


class Stepper(Protocol):
    """The object that :func:`step_profiler` yields."""

    def step(self) -> None:
        """Call it after every training step."""
        ...


class _NoRecording:
    def step(self) -> None:
        pass


@contextmanager
def step_profiler() -> Iterator[Stepper]:
    """Let ``torchscale profile --tool kineto -- …`` record steps of a training loop; without that
    command it has no effect.

    ::

        with torchscale.step_profiler() as profiler:
            for batch in loader:
                train_step(batch)
                profiler.step()
    """
    request_json = os.environ.get(RECORD_VARIABLE)
    if not request_json:
        yield _NoRecording()
        return

    # By name, so that type checkers and import linters see no import of torch from the package's
    # root.
    worker = importlib.import_module("torchscale.worker.profile.step_profiler")
    with worker.profiled_steps(request_json) as profiler:
        yield profiler
