"""Runs as a notebook shows them: of each the headline and a short table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.kinds import report_kind
from torchscale.report.sections.first_screen.headline import headline
from torchscale.report.table import Column, Table
from torchscale.report.text.cell_values import efficiency_value, rates, state_value
from torchscale.report.text.figures import STEP_MEAN
from torchscale.report.text.labels import identity_values
from torchscale.report.text.quantity import Quantity
from torchscale.report.text.run_labels import identity_columns
from torchscale.report.values import TableValue, shortened
from torchscale.util.words import plural

_MOST_ROWS = 20
"""Maximum number of rows of a run: about a screen. Frames have all."""


def runs_html(runs: Mapping[str, RunSummary]) -> str:
    """HTML without scripts and styles, so that it looks like the notebook's own tables; every text
    is escaped."""
    return "\n".join(_run(name, summary) for name, summary in runs.items())


def _run(name: str, summary: RunSummary) -> str:
    parts = [f"<p><b>{escape(shortened(name))}</b>: {escape(headline(summary).text)}</p>"]
    if summary.cells:
        parts.append(_table(summary))
    return "\n".join([*parts, *(f"<p>{escape(line)}</p>" for line in _more(summary))])


def _table(summary: RunSummary) -> str:
    figures = (*rates(summary.measured), STEP_MEAN)
    columns = (
        *identity_columns(summary),
        Column("state"),
        *(figure.column for figure in figures),
        Column("efficiency", True),
    )
    rows = tuple(_values(cell, figures) for cell in summary.cells[:_MOST_ROWS])
    table = Table("cells", columns, rows).compact()
    head = _row("th", [column.title for column in table.columns])
    body = "".join(_row("td", [value.text for value in row]) for row in table.rows)
    caption = f"<caption>{escape(table.caption)}</caption>"
    return f"<table>{caption}<thead>{head}</thead><tbody>{body}</tbody></table>"


def _values(cell: TrainingSummary, figures: Sequence[Quantity]) -> tuple[TableValue, ...]:
    values = (figure.of(cell) for figure in figures)
    return (*identity_values(cell.cell), state_value(cell), *values, efficiency_value(cell))


def _row(tag: str, texts: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(text)}</{tag}>' for text in texts)}</tr>"


def _more(summary: RunSummary) -> list[str]:
    """What the table has no room for."""
    lines = []
    left = len(summary.cells) - _MOST_ROWS
    if left > 0:
        lines.append(f"{plural(left, 'cell')} more in .cells")
    for cell in summary.machine:
        what = " ".join([cell.cell.title, *cell.cell.settings])
        outcome = cell.reason or cell.state.value
        if cell.state.has_figures:
            outcome = report_kind(cell.cell.kind).outcome(cell)
        lines.append(shortened(f"{what}: {outcome}"))
    if summary.problems:
        lines.append(
            f"{plural(len(summary.problems), 'file')} could not be read; .problems names them"
        )
    return lines
