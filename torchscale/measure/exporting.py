"""The exports that a config asks for while it is measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torchscale.config.experiment import Experiment
from torchscale.door import Slot
from torchscale.launch.control import StopRequest
from torchscale.measure.sweep import SweepExports
from torchscale.observer import Observer

_EXPORTS: Slot[Callable[[Experiment, Path, Observer, StopRequest], SweepExports]] = Slot(
    "sweep exports"
)


def sweep_exports(
    experiment: Experiment, directory: Path, observer: Observer, stop: StopRequest
) -> SweepExports | None:
    """Writes what ``export`` asks for; ``None`` where it asks for nothing."""
    if not experiment.export.places:
        return None
    return _EXPORTS["export"](experiment, directory, observer, stop)
