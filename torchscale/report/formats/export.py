"""A run's figures as CSV. Light: the sweep writes ``summary.csv`` after every launch."""

from __future__ import annotations

import csv
import io
import itertools
import operator
from collections.abc import Iterable

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.machine import MachineSummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.report.formats.columns import SUMMARY_COLUMNS, ColumnValue
from torchscale.report.kinds import report_kind
from torchscale.schema.state import State


def summary_csv(summary: RunSummary) -> str:
    """One row a cell; an empty field was not measured."""
    return SummaryCsv().text(summary)


class SummaryCsv:
    """:func:`summary_csv` of a run that is being measured: only rows of cells whose summary has
    changed since the last call are formatted again."""

    def __init__(self) -> None:
        self._cells: list[AnySummary | None] = []
        self._lines: list[str] = []

    def text(self, summary: RunSummary) -> str:
        """The whole file. Every call takes the same plan."""
        cells = summary.in_plan_order
        if not self._cells:
            self._cells, self._lines = [None] * len(cells), [""] * len(cells)
        # Runs through all cells after every launch, so it is left to the interpreter's own loops.
        for place in itertools.compress(
            range(len(cells)), map(operator.is_not, cells, self._cells)
        ):
            self._cells[place], self._lines[place] = cells[place], _line(_row(cells[place]))
        return "".join((_line(SUMMARY_COLUMNS), *self._lines))


def _row(cell: AnySummary) -> Iterable[ColumnValue]:
    return report_kind(cell.cell.kind).csv_row(cell).values()


def _line(values: Iterable[ColumnValue]) -> str:
    output = io.StringIO()
    csv.writer(output, lineterminator="\n").writerow([_csv_value(value) for value in values])
    return output.getvalue()


def machine_row(summary: MachineSummary) -> dict[str, ColumnValue]:
    """A cell that measured the machine: how it ended, and its main figures as text; all of them are
    in the JSON."""
    outcome = None
    if summary.state is State.OK:
        outcome = report_kind(summary.cell.kind).outcome(summary)
    return {
        **dict.fromkeys(SUMMARY_COLUMNS),
        "cell_id": summary.cell.id,
        "gpu_count": summary.cell.world_size,
        "state": summary.state.value,
        "reason": summary.reason,
        "launches": summary.launches,
        "kind": summary.cell.kind,
        "outcome": outcome,
    }


def _csv_value(value: ColumnValue) -> ColumnValue:
    """Spreadsheets run text that starts like a formula; an apostrophe stops them."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value
