"""What failed, grouped by reason."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.report.document import Failure
from torchscale.report.text.failure import failure_excerpt
from torchscale.report.text.labels import cell_label
from torchscale.report.values import shortened
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.util.words import listed, plural

_MAX_CELLS = 3
"""Cells that a failure names; the table of cells lists all."""


def failures(summary: RunSummary) -> tuple[Failure, ...]:
    """Failed cells of every kind, grouped by state and reason, in plan order."""
    groups: dict[tuple[str, str], list[AnySummary]] = {}
    for cell in summary.everything:
        if cell.state.has_failed:
            groups.setdefault((cell.state.value, cell.reason), []).append(cell)
    return tuple(
        Failure(
            _names(cells), state, shortened(reason or "no reason was recorded"), _excerpt(cells[0])
        )
        for (state, reason), cells in groups.items()
    )


def _excerpt(cell: AnySummary) -> tuple[str, ...]:
    """Where the first of these cells broke."""
    record = cell.facts.failed
    if record is None:
        return ()
    return tuple(shortened(line) for line in failure_excerpt(record))


def _names(cells: Sequence[AnySummary]) -> str:
    labels = [_label(cell) for cell in cells[:_MAX_CELLS]]
    if len(cells) > _MAX_CELLS:
        labels.append(plural(len(cells) - _MAX_CELLS, "more cell"))
    return listed(labels)


def _label(cell: AnySummary) -> str:
    trained = as_kind(cell.cell, TrainingCell)
    if trained is not None:
        return cell_label(trained)
    return shortened(
        ", ".join(
            [cell.cell.title, *cell.cell.settings, f"{plural(cell.cell.world_size, 'device')}"]
        )
    )
