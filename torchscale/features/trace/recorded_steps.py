"""What other features read of recordings: the mean step."""

from __future__ import annotations

from pathlib import Path

from torchscale.errors import TraceError
from torchscale.features.trace.analysis.operators import MeanRecordedStep, recorded_step
from torchscale.features.trace.readers.recordings import (
    ReadOptions,
    find_recordings,
    read_recordings,
)


def holds_recordings(path: Path) -> bool:
    """Whether it is a file, or a directory with at least one recording in it."""
    try:
        return bool(find_recordings([path]))
    except TraceError:
        return False


def mean_recorded_step(path: Path) -> MeanRecordedStep:
    """The mean step of a file or of all recordings in a directory.

    Raises:
        TraceError: it cannot be read, or has no steps in it.
    """
    return recorded_step(read_recordings(find_recordings([path]), ReadOptions(with_shapes=True)))
