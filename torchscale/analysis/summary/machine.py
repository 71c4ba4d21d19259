"""What came of the cells that measure the machine itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.analysis.summary.facts import NO_FACTS, CellFacts
from torchscale.analysis.training.flags import Flag
from torchscale.schema.cells.checkpoint import CheckpointCell
from torchscale.schema.cells.collectives import CollectivesCell, CollectivesRank, NcclLog
from torchscale.schema.cells.hardware import HardwareCell
from torchscale.schema.cells.memory import MemoryCell, MemoryRank, PredictedMemory
from torchscale.schema.exports.checkpoint import CheckpointFigures
from torchscale.schema.exports.machine import (
    CollectiveFigures,
    HardwareFigures,
    LinkCeiling,
    LinkVerdict,
)
from torchscale.schema.state import State


@dataclass(frozen=True)
class CollectivesSummary:
    """A sweep of collectives. ``place`` is rank 0's record, with the driver's view and the
    topology. ``flags`` are those of the bandwidths that it is known by; each size has its own."""

    cell: CollectivesCell
    state: State
    reason: str
    launches: int
    figures: CollectiveFigures | None = None
    verdict: LinkVerdict | None = None
    log: NcclLog | None = None
    place: CollectivesRank | None = None
    facts: CellFacts = NO_FACTS
    flags: tuple[Flag, ...] = ()

    @property
    def ceiling(self) -> LinkCeiling | None:
        """What the link allows; ``None`` where that is not known."""
        if self.verdict is None:
            return None
        return self.verdict.ceiling

    @property
    def transports(self) -> tuple[str, ...]:
        """Transports between ranks, as NCCL logged them; empty without a log."""
        if self.log is None:
            return ()
        return self.log.transports

    @property
    def moved_by(self) -> str:
        """By what data moved, and whether the NVLink switch may reduce; of records of earlier
        versions NCCL's transports. Empty where nothing is known."""
        moved = self.facts.transport
        if moved is None:
            return ", ".join(self.transports)
        if moved.nvls == "available":
            return f"{moved.text}; NVLS is available"
        return moved.text


@dataclass(frozen=True)
class HardwareSummary:
    """The ceilings of devices."""

    cell: HardwareCell
    state: State
    reason: str
    launches: int
    figures: HardwareFigures | None = None
    facts: CellFacts = NO_FACTS
    flags: tuple[Flag, ...] = ()


@dataclass(frozen=True)
class MemorySummary:
    """What a training step takes. ``ranks`` are those of the first launch, by rank."""

    cell: MemoryCell
    state: State
    reason: str
    launches: int
    ranks: tuple[MemoryRank, ...] = ()
    facts: CellFacts = NO_FACTS

    @property
    def flags(self) -> tuple[Flag, ...]:
        """None: what is allocated does not depend on the state of the machine."""
        return ()

    @property
    def fullest(self) -> MemoryRank | None:
        """The rank that takes most."""
        return max(self.ranks, key=lambda rank: rank.peak_bytes, default=None)

    @property
    def predicted(self) -> PredictedMemory | None:
        """The prediction of rank 0; ``None`` where there is none."""
        if not self.ranks:
            return None
        return self.ranks[0].predicted

    @property
    def prediction_error(self) -> float | None:
        """Predicted peak over the fullest rank's measured one, minus 1."""
        predicted, fullest = self.predicted, self.fullest
        if predicted is None or fullest is None:
            return None
        return predicted.peak_bytes / fullest.peak_bytes - 1


@dataclass(frozen=True)
class CheckpointSummary:
    """What saving and loading the state of training takes."""

    cell: CheckpointCell
    state: State
    reason: str
    launches: int
    figures: CheckpointFigures | None = None
    facts: CellFacts = NO_FACTS
    flags: tuple[Flag, ...] = ()


MachineSummary = CollectivesSummary | HardwareSummary | MemorySummary | CheckpointSummary
"""What came of a cell that measures the machine."""


def hardware_for(count: int, measured: Sequence[HardwareSummary]) -> HardwareSummary | None:
    """The ceilings that fit a world size best: of as many devices at once, else of the nearest
    larger count, else of the largest."""
    known = sorted(
        (summary for summary in measured if summary.figures is not None),
        key=lambda s: s.cell.world_size,
    )
    larger = [summary for summary in known if summary.cell.world_size >= count]
    return next(iter((*larger, *reversed(known))), None)
