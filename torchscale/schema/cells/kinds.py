"""The kinds of cells: the one table of them, and the only code that tells cells or records of
different kinds apart.

A kind is an entry here and a module of its name in every ``torchscale/<room>/kinds/``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from pydantic import Field

from torchscale.config.choices import CellKind
from torchscale.schema.cells.checkpoint import CheckpointCell, CheckpointRank, CheckpointResult
from torchscale.schema.cells.collectives import CollectivesCell, CollectivesRank, CollectivesResult
from torchscale.schema.cells.hardware import HardwareCell, HardwareRank, HardwareResult
from torchscale.schema.cells.memory import MemoryCell, MemoryRank, MemoryResult
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.training import TrainingResult

AnyCell = Annotated[
    HardwareCell | CollectivesCell | MemoryCell | CheckpointCell | TrainingCell,
    Field(discriminator="kind"),
]
"""A cell of any kind."""
AnyRank = HardwareRank | CollectivesRank | MemoryRank | CheckpointRank | RankRecord
"""What one rank of a launch of any kind measured."""
AnyPayload = Annotated[
    HardwareResult | CollectivesResult | MemoryResult | CheckpointResult | TrainingResult,
    Field(discriminator="kind"),
]
"""What all ranks of a launch of any kind measured."""


@dataclass(frozen=True)
class Kind:
    """A kind of cell: what is asked for, what each rank writes, and what the launch's record
    carries."""

    name: CellKind
    cell: type[AnyCell]
    rank: type[AnyRank]
    payload: type[AnyPayload]


KINDS: dict[CellKind, Kind] = {
    kind.name: kind
    for kind in (
        Kind("hardware", HardwareCell, HardwareRank, HardwareResult),
        Kind("collectives", CollectivesCell, CollectivesRank, CollectivesResult),
        Kind("memory", MemoryCell, MemoryRank, MemoryResult),
        Kind("checkpoint", CheckpointCell, CheckpointRank, CheckpointResult),
        Kind("training", TrainingCell, RankRecord, TrainingResult),
    )
}
"""Kinds of cells by name, in the order in which they are measured: peak rates before the training
that is compared with them."""

T = TypeVar("T")


def as_kind(value: object, kind_class: type[T]) -> T | None:
    """``value`` if it is a ``kind_class``, else ``None``: for a cell, a rank's record, a payload or
    a summary."""
    return value if isinstance(value, kind_class) else None


def of_kind(values: Iterable[object], kind_class: type[T]) -> tuple[T, ...]:
    """The ``values`` that are a ``kind_class``, in their order."""
    return tuple(value for value in values if isinstance(value, kind_class))


def training_workload(cell: AnyCell) -> TrainingCell | None:
    """The training setting that a cell trains, or whose memory or checkpoints it measures; ``None``
    for other kinds."""
    measured = as_kind(cell, MemoryCell) or as_kind(cell, CheckpointCell)
    if measured is not None:
        return measured.training
    return as_kind(cell, TrainingCell)
