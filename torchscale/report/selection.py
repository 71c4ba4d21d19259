"""What of many cells is drawn: the panels, lines and cells that a reader should see first. Tables hold every cell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from torchscale.analysis.results import CellSummary, RunSummary
from torchscale.report.words import panels

MAX_PANELS = 12
"""More panels are a wall."""
MAX_LINES = 6
"""More lines in a panel cannot be told apart."""
MAX_DETAILED = 6
"""Cells whose every rank is drawn over time."""

Line = Sequence[CellSummary]
"""Cells of one series, by world size."""
T = TypeVar("T")


def shown_panels(summary: RunSummary) -> tuple[tuple[str, tuple[Line, ...]], ...]:
    """Panels by title: all of a few in plan order, else those that scale worst; in each of them a few lines."""
    found = [(title, tuple(map(tuple, lines))) for title, lines in panels(summary.measured).items()]
    if len(found) > MAX_PANELS:
        found = sorted(found, key=lambda panel: _worst_efficiency(panel[1]))[:MAX_PANELS]
    return tuple((title, tuple(spread_out(lines, MAX_LINES))) for title, lines in found)


def panel_count(summary: RunSummary) -> int:
    """Panels there would be without a limit."""
    return len(panels(summary.measured))


def selection_words(summary: RunSummary) -> str:
    """What of the panels and lines is left out; empty where nothing is."""
    found = panels(summary.measured)
    count = len(found)
    said = (
        [f"Of {count} models and settings the {MAX_PANELS} that scale worst are drawn."] if count > MAX_PANELS else []
    )
    if any(len(lines) > MAX_LINES for lines in found.values()):
        said.append(f"Of more than {MAX_LINES} batch sizes, {MAX_LINES} from the smallest to the largest are drawn.")
    return " ".join([*said, *(["The tables hold every cell."] if said else [])])


def detailed_cells(summary: RunSummary) -> tuple[CellSummary, ...]:
    """One cell of each shown panel: at its largest count, where most is lost."""
    chosen = []
    for _, lines in shown_panels(summary):
        members = [cell for line in lines for cell in line]
        largest = max(cell.cell.world_size for cell in members)
        at_largest = [cell for cell in members if cell.cell.world_size == largest]
        chosen.append(max(at_largest, key=lambda cell: (_cost(cell), cell.cell.batch_size)))
    return tuple(chosen[:MAX_DETAILED])


def spread_out(items: Sequence[T], limit: int) -> list[T]:
    """At most ``limit`` of them, from the first to the last at equal distances."""
    if len(items) <= limit:
        return list(items)
    return [items[round(number * (len(items) - 1) / (limit - 1))] for number in range(limit)]


def _cost(cell: CellSummary) -> float:
    return max((finding.cost_percent for finding in cell.diagnosis.findings), default=0.0) if cell.diagnosis else 0.0


def _worst_efficiency(lines: Sequence[Line]) -> float:
    values = [cell.efficiency.value for line in lines for cell in line if cell.efficiency is not None]
    return min(values, default=1.0)
