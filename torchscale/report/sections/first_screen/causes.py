"""What costs time, grouped by cause: one entry with its cells, what it costs and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.analysis.diagnosis.shared import COST_FLOOR
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import LostTime
from torchscale.report.text.findings import confidence_text, finding_title
from torchscale.report.text.labels import batch_label, short_title
from torchscale.report.text.run_labels import device_noun
from torchscale.report.values import shortened
from torchscale.schema.exports.training import Decomposition
from torchscale.schema.profiles.finding import Finding, FindingKind
from torchscale.util.units import format_percent, format_seconds
from torchscale.util.words import capped, format_range, listed, plural, sentence

_MAX_CELLS = 3
"""Cells that a cause names; the table of findings lists all."""
MAX_TOP = 3
"""Causes on the first screen, side by side; the section on findings has all."""
_SLOWER_COMPUTE = 0.05
"""Share of the step from which slower compute is listed as a cause, as for exposed communication
(``analysis/diagnosis/rules_communication.py``)."""
_SLOWER_COMPUTE_ADVICE = (
    "devices that work at once slow each other down; compare the peak rates of one device and of "
    "all at once (torchscale measure hardware), and look for shared memory bandwidth, clocks, "
    "power limits and other processes"
)


@dataclass(frozen=True)
class CostlyCell:
    """A cause in one cell. ``finding`` is ``None`` for slower compute, which the decomposition
    shows."""

    cell: TrainingSummary
    share: float
    text: str
    advice: str
    finding: Finding | None = None


@dataclass(frozen=True)
class CauseGroup:
    """A cause with its cells, the one where it costs most first."""

    title: str
    cells: tuple[CostlyCell, ...]

    @property
    def largest(self) -> float:
        """Share of the step in the cell where it costs most."""
        return self.cells[0].share


def cause_groups(summary: RunSummary) -> tuple[CauseGroup, ...]:
    """Findings of all cells and compute that slows down with the count, the costliest cause
    first."""
    found: dict[str, list[CostlyCell]] = {}
    for cell in summary.cells:
        for finding in _findings(cell):
            title = finding_title(finding)
            share = finding.cost_percent / 100
            found.setdefault(title, []).append(
                CostlyCell(cell, share, finding.summary, finding.advice, finding)
            )
        slower = _slower_compute(cell)
        if slower is not None:
            found.setdefault("Slower compute", []).append(slower)
    groups = [
        CauseGroup(title, tuple(sorted(cells, key=lambda one: -one.share)))
        for title, cells in found.items()
    ]
    return tuple(sorted(groups, key=lambda group: -group.largest))


def _findings(cell: TrainingSummary) -> tuple[Finding, ...]:
    """Findings of a cell's launches; of a cell that was only profiled, those of the recording."""
    if cell.figures is not None:
        if cell.diagnosis:
            return cell.diagnosis.findings
        return ()
    if cell.profile:
        return cell.profile.findings
    return ()


def top_groups(groups: Sequence[CauseGroup]) -> tuple[CauseGroup, ...]:
    """Groups of causes on the first screen."""
    return tuple(group for group in groups if group.largest >= COST_FLOOR)[:MAX_TOP]


def causes(summary: RunSummary, groups: Sequence[CauseGroup]) -> tuple[LostTime, ...]:
    """Causes for people."""
    return tuple(
        LostTime(
            title=group.title,
            cost=cost_text(group),
            cells=_cells_text(summary, group),
            text=shortened(_seen(group)),
            advice=shortened(sentence(group.cells[0].advice)),
        )
        for group in groups
    )


def cost_text(group: CauseGroup) -> str:
    """``10.2 % to 31.7 % of the step``; empty where no cost is known."""
    known = [one.share for one in group.cells if one.share]
    if not known:
        return ""
    return f"{format_range(known, format_percent)} of the step"


def _seen(group: CauseGroup) -> str:
    """What was seen where it costs most, and how sure that is."""
    worst = group.cells[0]
    where = ""
    if len(group.cells) > 1:
        where = f" ({short_title(worst.cell.cell)}, {batch_label(worst.cell.cell)})"
    sure = ""
    if worst.finding is not None:
        sure = f" Confidence: {confidence_text(worst.finding)}."
    return f"{sentence(worst.text).removesuffix('.')}{where}.{sure}"


def _cells_text(summary: RunSummary, group: CauseGroup) -> str:
    """``tiny ResNet, batch 8, 2 GPUs``, or ``3 cells: tiny ResNet, batch 8 and 32, …``."""
    names = [_name(summary, one.cell) for one in group.cells]
    if len(names) == 1:
        return names[0]
    return f"{plural(len(names), 'cell')}: {listed(capped(names, _MAX_CELLS))}"


def _name(summary: RunSummary, cell: TrainingSummary) -> str:
    count = cell.cell.world_size
    return (
        f"{short_title(cell.cell)} ({batch_label(cell.cell)}, {count} "
        f"{device_noun(summary, count)})"
    )


def _slower_compute(cell: TrainingSummary) -> CostlyCell | None:
    """Forward, backward and optimizer that take longer than at the smallest count; ``None`` where a
    straggler, whose compute is in the mean, explains it."""
    lost = cell.decomposition
    if lost is None or lost.compute < _SLOWER_COMPUTE * lost.step or _has_straggler(cell):
        return None
    return CostlyCell(cell, lost.compute / lost.step, _slower_text(lost), _SLOWER_COMPUTE_ADVICE)


def _has_straggler(cell: TrainingSummary) -> bool:
    if cell.diagnosis is None:
        return False
    return any(
        finding.kind in (FindingKind.STRAGGLER, FindingKind.INTERMITTENT_STRAGGLER)
        for finding in cell.diagnosis.findings
    )


def _slower_text(lost: Decomposition) -> str:
    count = lost.baseline_world_size
    return (
        f"forward, backward and optimizer take {format_seconds(lost.compute)} a step longer than "
        f"on {plural(count, 'device')}"
    )
