"""The list of runs."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue, Tone, text_value

_TONES = {
    "done": Tone.GOOD,
    "running": Tone.GOOD,
    "partial": Tone.CAUTION,
    "failed": Tone.BAD,
    "lost": Tone.CAUTION,
    "unreadable": Tone.BAD,
}


def runs_table(rows: Sequence[tuple[str, str, str, int, int, str]]) -> Table:
    """A row a run: id, time in UTC (ISO 8601), state, measured and planned cells, headline."""
    columns = (
        Column("run"),
        Column("measured (UTC)"),
        Column("state"),
        Column("cells"),
        Column("headline", prose=True),
    )
    return Table("", columns, tuple(map(_row, rows)))


def _row(row: tuple[str, str, str, int, int, str]) -> tuple[TableValue, ...]:
    name, time, state, done, planned, headline = row
    return (
        TableValue(name),
        text_value(time[:16].replace("T", " ")),
        TableValue(state, None, _TONES.get(state, Tone.DIM)),
        text_value(f"{done} of {planned}" if planned else ""),
        text_value(headline),
    )
