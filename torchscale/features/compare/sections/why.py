"""Explained differences: for each training cell the parts of the difference as a table and as a
waterfall, what a launch takes outside its steps, and the likeliest causes."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.features.compare.analysis.cell_why import CellWhy, Clarity
from torchscale.features.compare.analysis.explanation import ExplainedCell, ExplainedPair
from torchscale.features.compare.analysis.operators import ComparedRecording
from torchscale.features.compare.text.comparison import comparison_label, table_names
from torchscale.features.compare.text.operators import (
    OperatorRow,
    about_recordings,
    operator_rows,
    operator_share,
    recording_headline,
)
from torchscale.features.compare.text.why import cause_sentences, why_headline
from torchscale.features.compare.text.why_rows import (
    TimeUnit,
    WhyRow,
    clarity_text,
    outside_rows,
    share_text,
    step_rows,
)
from torchscale.report.charts import BarLayer, StackedChart, chart_name
from torchscale.report.document import Block, Bullets, ChartGrid, Paragraph, Section
from torchscale.report.table import ColumnOf, Table, table_of
from torchscale.report.values import TableValue, Tone, shortened
from torchscale.util.words import plural

_MAX_OPERATORS, _MAX_BRIEF_OPERATORS = 60, 8
"""Rows of operators; JSON has all."""
_MAX_BRIEF_CELLS = 3
"""In a pull request; HTML and JSON have all."""
_TONES = {Clarity.CLEAR: Tone.CAUTION, Clarity.SMALL: Tone.DIM, Clarity.UNCLEAR: Tone.PLAIN}
_LONGER, _SHORTER = 1, 0
"""Styles of the waterfall's bars."""


def why_section(explained: Sequence[ExplainedPair], *, brief: bool = False) -> Section:
    """Why the cells of each pair differ."""
    blocks: list[Block] = []
    if any(pair.cells for pair in explained) and not brief:
        blocks.append(
            Paragraph(
                "The mean step of a side is the mean over its launches; each part is a mean over "
                "ranks and launches, and the parts add up to the step. A phase is what the typical "
                "rank takes (the lower median); what ranks take longer, and the others' waiting for "
                "them, are slower ranks. Exposed communication is what no compute hides, once all "
                "ranks have come. Clear: p < 0.05 after Holm's correction over the parts, and more "
                "than the threshold; small: within the threshold."
            )
        )
    for pair in explained:
        before, after = table_names((pair.pair.reference.name, pair.pair.other.name))
        names = (before, after)
        cells = pair.cells[:_MAX_BRIEF_CELLS] if brief else pair.cells
        for cell in cells:
            blocks += _cell_blocks(cell, names, brief=brief)
        if len(cells) < len(pair.cells):
            more = plural(len(pair.cells) - len(cells), "more cell")
            blocks.append(Paragraph(f"And {more}; HTML and JSON have all."))
        for recording in pair.recordings:
            blocks += recording_blocks(recording, names, brief=brief)
        if pair.without:
            blocks.append(
                Bullets(
                    tuple(
                        shortened(f"No parts of {name}: {reason}.")
                        for name, reason in pair.without.items()
                    )
                )
            )
    return Section("Why", "why", tuple(blocks))


def recording_blocks(
    recording: ComparedRecording, names: tuple[str, str], *, brief: bool = False
) -> list[Block]:
    """The operators of two recordings."""
    compared = recording.comparison
    if compared is None:
        text = f"Recordings of {recording.label} cannot be compared: {recording.problem}"
        return [Paragraph(shortened(text))]
    unit, rows = operator_rows(compared, _MAX_BRIEF_OPERATORS if brief else _MAX_OPERATORS)
    columns: tuple[ColumnOf[OperatorRow], ...] = (
        ColumnOf(f"operator, {unit.name} a step", lambda row: row.label, prose=True),
        ColumnOf(names[0], lambda row: row.before, unit.text),
        ColumnOf(names[1], lambda row: row.after, unit.text),
        ColumnOf("change", lambda row: row.difference, unit.change),
        ColumnOf("share", lambda row: TableValue(operator_share(row), row.share), numeric=True),
        ColumnOf("calls", lambda row: row.calls, numeric=True),
        ColumnOf("what", lambda row: "" if row.fate is None else row.fate.value),
    )
    return [
        Paragraph(recording_headline(recording.label, compared)),
        table_of(f"Operators, {shortened(recording.label)}", columns, rows),
        Paragraph(about_recordings(compared)),
    ]


def _cell_blocks(cell: ExplainedCell, names: tuple[str, str], *, brief: bool) -> list[Block]:
    why = cell.why
    unit, rows = step_rows(why)
    outside_unit, outside = outside_rows(why)
    label = comparison_label(why.cell)
    blocks: list[Block] = [
        Paragraph(why_headline(cell)),
        Bullets(tuple(cause_sentences(cell))),
        _table(f"Parts of the mean step, {label}", rows, unit, names, why),
    ]
    if not brief:
        blocks.append(ChartGrid((waterfall(cell, names),), wide=True))
    clear = [row for row in outside[:-1] if row.clarity is Clarity.CLEAR]
    if outside and (clear or not brief):
        shown = [*clear, outside[-1]] if brief else outside
        caption = f"Outside the steps of a launch, {label}"
        blocks.append(_table(caption, shown, outside_unit, names, why))
    return blocks


def _table(
    caption: str, rows: Sequence[WhyRow], unit: TimeUnit, names: tuple[str, str], why: CellWhy
) -> Table:
    columns: tuple[ColumnOf[WhyRow], ...] = (
        ColumnOf(f"part, {unit.name}", lambda row: f"{'of it ' * bool(row.indent)}{row.label}"),
        ColumnOf(names[0], lambda row: row.before, unit.text),
        ColumnOf(names[1], lambda row: row.after, unit.text),
        ColumnOf("change", lambda row: row.difference, unit.change),
        ColumnOf("95 % interval", lambda row: row.interval, numeric=True),
        ColumnOf("share", lambda row: TableValue(share_text(row), row.share), numeric=True),
        ColumnOf("verdict", lambda row: _clarity(row, why)),
    )
    return table_of(caption, columns, rows)


def _clarity(row: WhyRow, why: CellWhy) -> TableValue:
    tone = Tone.PLAIN if row.clarity is None else _TONES[row.clarity]
    return TableValue(clarity_text(row, why), row.clarity, tone)


def waterfall(cell: ExplainedCell, names: tuple[str, str]) -> StackedChart:
    """Each part's difference begins where the one above it ends; the last bar, from 0, is the
    difference of the step."""
    unit, rows = step_rows(cell.why)
    *parts, total = [row for row in rows if not row.indent]
    spans: list[tuple[float, float]] = []
    level = 0.0
    for row in parts:
        spans.append((level, level + row.difference))
        level += row.difference
    spans.append((0.0, total.difference))
    label = comparison_label(cell.why.cell)
    title = f"{names[1]} against {names[0]}: {label}"
    return StackedChart(
        name=chart_name("why", title),
        title=title,
        summary=f"The parts of the difference of the mean step, each beginning where the one above "
        f"ends, {title}.",
        x_label=f"longer than in {names[0]}, {unit.name}",
        y_label="",
        bars=(*(row.label for row in parts), total.label),
        parts=_layers([(round(a, unit.digits), round(b, unit.digits)) for a, b in spans]),
        horizontal=True,
    )


def _layers(spans: Sequence[tuple[float, float]]) -> tuple[BarLayer, ...]:
    """Bars from one value to another, as layers that are stacked from 0 to either side: one that
    crosses 0 has a part on each."""
    ends = [sorted(span) for span in spans]
    lifts = [max(low, 0.0) + min(high, 0.0) for low, high in ends]
    above = [max(high, 0.0) - max(low, 0.0) for low, high in ends]
    below = [min(low, 0.0) - min(high, 0.0) for low, high in ends]
    is_longer = [end >= start for start, end in spans]

    def only(values: Sequence[float], *, longer: bool) -> tuple[float, ...]:
        return tuple(
            value if one is longer else 0.0 for value, one in zip(values, is_longer, strict=True)
        )

    return (
        BarLayer("", tuple(lifts), hidden=True),
        BarLayer("longer", only(above, longer=True), _LONGER),
        BarLayer("longer", only(below, longer=True), _LONGER),
        BarLayer("shorter", only(above, longer=False), _SHORTER),
        BarLayer("shorter", only(below, longer=False), _SHORTER),
    )
