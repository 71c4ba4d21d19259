"""What a rank runs for each kind of cell: one module per kind, named after it."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Protocol, TypeVar, cast

from torchscale.config.choices import CellKind
from torchscale.schema.cells.kinds import AnyCell, AnyRank
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.train import Started

C_contra = TypeVar("C_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class WorkerKind(Protocol[C_contra, R_co]):
    """What a module of this package provides for its kind of cell and rank record."""

    def measure(
        self, task: LaunchTask, cell: C_contra, ranks: Ranks, files: RankFiles, started: Started
    ) -> R_co | None:
        """Measure ``cell`` and return this rank's record; ``None`` if the task asked for a
        recording instead."""


@cache
def worker_kind(name: CellKind) -> WorkerKind[AnyCell, AnyRank]:
    """The module of a kind; importing it may take seconds."""
    return cast(WorkerKind[AnyCell, AnyRank], import_module(f"{__name__}.{name}"))
