"""What came of the cells that measure the machine itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.analysis.collectives import CollectiveFigures, collective_figures, rank_zero
from torchscale.analysis.facts import NO_FACTS, CellFacts
from torchscale.analysis.hardware import HardwareFigures, hardware_figures
from torchscale.analysis.link_verdict import LinkVerdict, Machine, judge_link
from torchscale.schema.collectives import CollectivesCell, CollectivesRank, NcclLog
from torchscale.schema.hardware import HardwareCell
from torchscale.schema.memory import MemoryCell, MemoryRank, PredictedMemory
from torchscale.schema.record import State
from torchscale.schema.run import CellRun, Run


@dataclass(frozen=True)
class CollectivesSummary:
    """A sweep of collectives. ``place`` is rank 0's record, with the driver's view and the topology."""

    cell: CollectivesCell
    state: State
    reason: str
    launches: int
    figures: CollectiveFigures | None = None
    verdict: LinkVerdict | None = None
    log: NcclLog | None = None
    place: CollectivesRank | None = None
    facts: CellFacts = NO_FACTS


@dataclass(frozen=True)
class HardwareSummary:
    """The ceilings of devices."""

    cell: HardwareCell
    state: State
    reason: str
    launches: int
    figures: HardwareFigures | None = None
    facts: CellFacts = NO_FACTS


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
    def fullest(self) -> MemoryRank | None:
        """The rank that takes most."""
        return max(self.ranks, key=lambda rank: rank.peak_bytes, default=None)

    @property
    def predicted(self) -> PredictedMemory | None:
        """Rank 0's."""
        return self.ranks[0].predicted if self.ranks else None

    @property
    def prediction_error(self) -> float | None:
        """Predicted peak over the fullest rank's measured one, minus 1."""
        predicted, fullest = self.predicted, self.fullest
        return None if predicted is None or fullest is None else predicted.peak_bytes / fullest.peak_bytes - 1


CeilingSummary = CollectivesSummary | HardwareSummary | MemorySummary
"""What came of a cell that measures the machine."""


def summarize_collectives(
    cell_run: CellRun, cell: CollectivesCell, outcome: tuple[State, str], run: Run | None
) -> CollectivesSummary:
    """``run`` is where the launch that logs NCCL's choices is looked for, and what the config declares."""
    launches = cell_run.launches
    state, reason = outcome
    place = rank_zero(launches)
    if state is not State.OK or place is None:
        return CollectivesSummary(cell, state, reason, len(launches))
    figures = collective_figures(cell, launches)
    log = launches[0].nccl_log
    verdict = None
    if run is not None:
        known = Machine(run.experiment.config.hardware, place, log, _choices(run, cell), run.experiment.environment.env)
        verdict = judge_link(cell, figures, known)
    return CollectivesSummary(cell, state, reason, len(launches), figures, verdict, log, place)


def summarize_hardware(cell_run: CellRun, cell: HardwareCell, outcome: tuple[State, str]) -> HardwareSummary:
    """Figures where every launch is ``ok``."""
    figures = hardware_figures(cell_run.launches) if outcome[0] is State.OK else None
    return HardwareSummary(cell, *outcome, len(cell_run.launches), figures)


def summarize_memory(cell_run: CellRun, cell: MemoryCell, outcome: tuple[State, str]) -> MemorySummary:
    """Ranks where every launch is ``ok``."""
    ranks = cell_run.launches[0].memory if outcome[0] is State.OK else ()
    return MemorySummary(cell, *outcome, len(cell_run.launches), ranks)


def hardware_for(count: int, measured: Sequence[HardwareSummary]) -> HardwareSummary | None:
    """The ceilings that fit a world size best: of as many devices at once, else of the nearest larger count, else of
    the largest."""
    known = sorted((summary for summary in measured if summary.figures is not None), key=lambda s: s.cell.world_size)
    larger = [summary for summary in known if summary.cell.world_size >= count]
    return larger[0] if larger else known[-1] if known else None


def _choices(run: Run, cell: CollectivesCell) -> NcclLog | None:
    """What NCCL logged of its choices in the cell that does nothing else."""
    wanted = (cell.world_size, cell.algorithm, cell.protocol)
    for other in run.cells:
        found = other.planned.cell
        if not (isinstance(found, CollectivesCell) and found.logs_choices and other.launches):
            continue
        if (found.world_size, found.algorithm, found.protocol) == wanted:
            return other.launches[0].nccl_log
    return None
