"""A run folder in memory: what analysis works on and the store reads."""

from __future__ import annotations

from dataclasses import dataclass

from torchscale.schema.experiment import ExperimentFile, PlannedCell
from torchscale.schema.record import LaunchRecord


@dataclass(frozen=True)
class CellRun:
    """A planned cell and its completed launches, by launch index."""

    planned: PlannedCell
    launches: tuple[LaunchRecord, ...]


@dataclass(frozen=True)
class Run:
    """A whole run folder.

    Attributes:
        name: The directory's name.
        experiment: What was asked, the plan, the machine.
        cells: In plan order.
        problems: What could not be read and was left out, one line each.
    """

    name: str
    experiment: ExperimentFile
    cells: tuple[CellRun, ...]
    problems: tuple[str, ...] = ()
