"""Which of many cells are drawn: the panels, lines and cells that matter most. Tables list every
cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.text.run_labels import panels
from torchscale.report.values import only_if

MAX_PANELS = 12
"""About two screens of charts, or three pages on paper; more would push the tables out of sight."""
MAX_LINES = 6
"""The palette has seven colours; one is left for a reference or a mark."""
MAX_DETAILED = 6
"""Cells drawn in detail: up to six charts each, and each needs the whole record of a launch in
memory."""

Line = Sequence[TrainingSummary]
"""Cells of one series, by world size."""
T = TypeVar("T")


def shown_panels(summary: RunSummary) -> tuple[tuple[str, tuple[Line, ...]], ...]:
    """Panels by title: all of a few in plan order, else those that scale worst; in each of them a
    few lines."""
    found = [(title, tuple(map(tuple, lines))) for title, lines in panels(summary.measured).items()]
    if len(found) > MAX_PANELS:
        found = sorted(found, key=lambda panel: _worst_efficiency(panel[1]))[:MAX_PANELS]
    return tuple((title, tuple(spread_out(lines, MAX_LINES))) for title, lines in found)


def selection_note(summary: RunSummary) -> str:
    """Which panels and lines are not drawn; empty where all are."""
    found = panels(summary.measured)
    count = len(found)
    sentences = []
    if count > MAX_PANELS:
        sentences.append(
            f"Charts show the {MAX_PANELS} of {count} models and settings that scale worst."
        )
    if any(len(lines) > MAX_LINES for lines in found.values()):
        sentences.append(
            f"Charts show at most {MAX_LINES} batch sizes each, from the smallest to the largest."
        )
    return " ".join([*sentences, *only_if(sentences, "The tables list every cell.")])


def detailed_cells(summary: RunSummary) -> tuple[TrainingSummary, ...]:
    """One cell of each shown panel: at its largest count, where most is lost."""
    chosen = []
    for _, lines in shown_panels(summary):
        members = [cell for line in lines for cell in line]
        largest = max(cell.cell.world_size for cell in members)
        at_largest = [cell for cell in members if cell.cell.world_size == largest]
        chosen.append(max(at_largest, key=lambda cell: (_cost(cell), cell.cell.batch_size or 0)))
    return tuple(chosen[:MAX_DETAILED])


def spread_out(items: Sequence[T], limit: int) -> list[T]:
    """Up to ``limit`` of the items, from the first to the last at equal distances."""
    if len(items) <= limit:
        return list(items)
    return [items[round(number * (len(items) - 1) / (limit - 1))] for number in range(limit)]


def _cost(cell: TrainingSummary) -> float:
    if cell.diagnosis:
        return max((finding.cost_percent for finding in cell.diagnosis.findings), default=0.0)
    return 0.0


def _worst_efficiency(lines: Sequence[Line]) -> float:
    values = [
        cell.efficiency.value for line in lines for cell in line if cell.efficiency is not None
    ]
    return min(values, default=1.0)
