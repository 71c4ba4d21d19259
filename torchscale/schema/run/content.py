"""A run folder in memory: what analysis works on and the store reads."""

from __future__ import annotations

from dataclasses import dataclass

from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.telemetry import Reading
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.profiles.analysis import ProfileAnalysis
from torchscale.schema.run.experiment_file import ExperimentFile, PlannedCell
from torchscale.schema.watch.report import WatchReport


@dataclass(frozen=True)
class CellRun:
    """A planned cell, its completed launches by launch index, what its last profile showed, and of
    a user's program what ``watch`` last saw of it."""

    planned: PlannedCell
    launches: tuple[LaunchRecord, ...]
    profile: ProfileAnalysis | None = None
    watched: WatchReport | None = None


@dataclass(frozen=True)
class LaunchDetail:
    """A training launch in full: what its ranks measured, and the telemetry that was read during
    it."""

    result: TrainingResult
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True)
class Run:
    """A whole run folder.

    Attributes:
        name: The directory's name.
        experiment: What was asked, the plan, the machine.
        cells: Cells in plan order.
        problems: What could not be read and was left out, one line each.
    """

    name: str
    experiment: ExperimentFile
    cells: tuple[CellRun, ...]
    problems: tuple[str, ...] = ()
