"""The thresholds of a calibrated baseline, as a table."""

from __future__ import annotations

from dataclasses import dataclass

from torchscale.features.compare.text.calibration import calibration_sentences
from torchscale.features.compare.text.result import METRIC_LABELS, metric_label, result_label
from torchscale.report.document import Block, Bullets
from torchscale.report.table import ColumnOf, table_of
from torchscale.report.values import TableValue
from torchscale.schema.run.calibration import Calibration, Scatter
from torchscale.schema.run.result_set import ResultSet
from torchscale.util.units import format_percent

FOUND_MOSTLY = 1.2816
"""Standard deviations beyond the threshold at which nine of ten runs alarm."""


@dataclass(frozen=True)
class _Row:
    cell: str
    metric: str
    scatter: Scatter

    @property
    def found(self) -> float:
        """The loss that nine runs in ten show."""
        return self.scatter.found_loss(FOUND_MOSTLY)


def calibration_blocks(results: ResultSet, calibration: Calibration) -> list[Block]:
    """What the thresholds rest on, and each of them."""
    labels = {cell.cell.id: result_label(cell) for cell in results.cells}
    rows = [
        _Row(
            labels.get(one.cell, one.cell), metric_label(one.figure.metric, one.figure.detail), one
        )
        for one in calibration.cells
    ]
    rows += [_Row("mean over cells", METRIC_LABELS[one.metric], one) for one in calibration.overall]
    columns: tuple[ColumnOf[_Row], ...] = (
        ColumnOf("cell", lambda row: row.cell, prose=True),
        ColumnOf("metric", lambda row: row.metric),
        ColumnOf("runs", lambda row: TableValue(str(row.scatter.runs), row.scatter.runs)),
        ColumnOf("between runs", lambda row: row.scatter.between, format_percent, numeric=True),
        ColumnOf("within", lambda row: row.scatter.within, format_percent, numeric=True),
        ColumnOf("threshold", lambda row: row.scatter.threshold, format_percent, numeric=True),
        ColumnOf("found 9 in 10", lambda row: row.found, format_percent, numeric=True),
    )
    launches = min((one.launches for one in calibration.cells), default=0)
    return [
        table_of("Calibrated thresholds", columns, rows),
        Bullets(tuple(calibration_sentences(calibration, launches))),
        Bullets(
            (
                "Between runs, within: standard deviations of the level of a run, and of a launch "
                "in its run. Found 9 in 10: a loss of that size fails nine gates of ten.",
            )
        ),
    ]
