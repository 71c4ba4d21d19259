"""Explained differences on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from torchscale.features.compare.analysis.explanation import ExplainedCell, ExplainedPair
from torchscale.features.compare.analysis.operators import ComparedRecording
from torchscale.features.compare.analysis.why import Clarity
from torchscale.features.compare.text.operators import (
    about_recordings,
    operator_rows,
    operator_share,
    recording_headline,
)
from torchscale.features.compare.text.why import (
    Unit,
    WhyRow,
    cause_sentences,
    outside_rows,
    share_text,
    step_rows,
    why_headline,
)
from torchscale.report.document import shortened
from torchscale.report.text.words import plural
from torchscale.util.optional import optional

_MAX_OPERATORS = 12
"""Half a screen; JSON has all."""
_MAX_CELLS = 3
"""About two screens; JSON and HTML hold every cell."""
_LABEL = 22
"""Characters of the longest label, so that tables below each other have their columns in line."""
_STYLES = {Clarity.CLEAR: "bold", Clarity.SMALL: "dim", Clarity.UNCLEAR: "default"}


def print_why(explained: ExplainedPair, console: Console) -> None:
    """The cells that differ most: their parts, and the likeliest causes."""
    names = (shortened(explained.pair.reference.name), shortened(explained.pair.other.name))
    for cell in explained.cells[:_MAX_CELLS]:
        _print_cell(cell, names, console)
    if len(explained.cells) > _MAX_CELLS:
        more = plural(len(explained.cells) - _MAX_CELLS, "more cell")
        console.print(f"… and {more} (--format json or html)\n", markup=False)
    for name, reason in explained.without.items():
        console.print(shortened(f"No parts of {name}: {reason}."), markup=False, soft_wrap=True)
    for recording in explained.recordings:
        print_recording(recording, names, console)
    if not explained.cells and not explained.without and not explained.recordings:
        text = (
            "No training cell was compared, so there is nothing to explain (--match "
            "model,global_batch,devices compares cells that differ otherwise)."
        )
        console.print(f"{text}\n", markup=False, soft_wrap=True)


def print_recording(recording: ComparedRecording, names: tuple[str, str], console: Console) -> None:
    """The operators that changed most, and the rest of the step."""
    compared = recording.comparison
    if compared is None:
        text = f"Recordings of {recording.label} cannot be compared: {recording.problem}"
        console.print(shortened(text), markup=False, soft_wrap=True)
        return
    heading = recording_headline(recording.label, compared)
    console.print(f"Recordings: {heading}", style="bold", markup=False, soft_wrap=True)
    unit, rows = operator_rows(compared, _MAX_OPERATORS)
    table = Table(
        Column(f"operator, {unit.name} a step", overflow="fold", ratio=1),
        *(Column(escape(name), justify="right", overflow="fold", min_width=7) for name in names),
        *(Column(title, justify="right", no_wrap=True) for title in ("change", "share", "calls")),
        Column("", no_wrap=True),
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    for row in rows:
        table.add_row(
            escape(row.label),
            unit.text(row.before),
            unit.text(row.after),
            unit.change(row.difference),
            operator_share(row),
            row.calls,
            "" if row.fate is None else row.fate.value,
        )
    console.print(table)
    console.print(about_recordings(compared), markup=False, soft_wrap=True)
    console.print()


def _print_cell(cell: ExplainedCell, names: tuple[str, str], console: Console) -> None:
    console.print(f"Why: {why_headline(cell)}", style="bold", markup=False, soft_wrap=True)
    unit, rows = step_rows(cell.why)
    console.print(_table(rows, unit, names, "part of the step"))
    unit, rows = outside_rows(cell.why)
    shown = [row for row in rows[:-1] if row.clarity is Clarity.CLEAR]
    if rows:
        console.print(_table([*shown, rows[-1]], unit, names, "outside the steps"))
    for sentence in cause_sentences(cell):
        console.print(sentence, markup=False, soft_wrap=True)
    console.print()


def _table(rows: Sequence[WhyRow], unit: Unit, names: tuple[str, str], heading: str) -> Table:
    sides = [[unit.text(row.before) for row in rows], [unit.text(row.after) for row in rows]]
    table = Table(
        Column(f"{heading}, {unit.name}", no_wrap=True, min_width=_LABEL),
        *(
            Column(escape(name), justify="right", overflow="fold", min_width=max(map(len, values)))
            for name, values in zip(names, sides, strict=True)
        ),
        *(
            Column(title, justify="right", no_wrap=True)
            for title in ("change", "95 % interval", "share")
        ),
        Column("", no_wrap=True),
        box=None,
        pad_edge=False,
        padding=(0, 1, 0, 0),
        header_style="bold",
    )
    for row in rows:
        style = "default"
        if row.clarity is not None:
            style = _STYLES[row.clarity]
        label = row.label
        if row.indent:
            label = f"  of it {row.label}"
        table.add_row(
            escape(label),
            unit.text(row.before),
            unit.text(row.after),
            unit.change(row.difference),
            row.interval,
            share_text(row),
            optional(lambda clarity: clarity.value, row.clarity) or "",
            style=style,
        )
    return table
