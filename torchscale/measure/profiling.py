"""What ``profiling`` of a config asks for: recordings of measured cells. A feature records them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from torchscale.door import Slot
from torchscale.launch.control import StopRequest
from torchscale.measure.context import PlannedRun
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.progress import Progress
from torchscale.schema.profiles.analysis import ProfileAnalysis


class CellProfile(Protocol):
    """A recording of a cell."""

    @property
    def analysis(self) -> ProfileAnalysis | None:
        """What it shows; ``None`` where there is nothing to analyze."""

    @property
    def problem(self) -> str:
        """Why there is nothing to analyze; else empty."""


class CellProfiler(Protocol):
    """Records cells of a plan, each in a launch of its own that feeds no throughput."""

    def profile(
        self,
        cell: TrainingCell,
        directory: Path,
        stop: StopRequest,
        on_progress: Callable[[Progress], None],
    ) -> CellProfile:
        """Record ``cell`` into ``directory`` and analyze it."""
        ...


CellProfilers = Callable[[PlannedRun], tuple[CellProfiler | None, tuple[str, ...]]]
"""Gives the profiler that ``profiling`` asks for, and notes on what it will not get; ``None`` where
nothing can be recorded."""
_PROFILERS: Slot[CellProfilers] = Slot("cell profiler")


def cell_profiler(planned: PlannedRun) -> tuple[CellProfiler | None, tuple[str, ...]]:
    """The profiler that ``profiling`` asks for, and notes on what it will not get; ``None`` where
    nothing is to be recorded, or can be."""
    settings = planned.experiment.profiling
    if not settings.enabled or settings.trigger == "never" or planned.named:
        return None, ()
    return _PROFILERS["trace"](planned)
