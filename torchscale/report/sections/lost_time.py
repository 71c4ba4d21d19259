"""Where the time of a step goes at each device count: the step of the smallest count, and what
larger counts add."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.decomposition import UNEXPLAINED_LIMIT
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.charts import BarLayer, StackedChart, chart_name
from torchscale.report.document import Block, ChartGrid, Paragraph, ReportPart, Section
from torchscale.report.sections.selection import MAX_PANELS
from torchscale.report.table import Column, Table
from torchscale.report.text.figures import STEP_MEAN
from torchscale.report.text.labels import batch_label, identity_values, panel_title
from torchscale.report.text.lost_parts import LOST_PARTS
from torchscale.report.text.run_labels import device_noun, identity_columns, panels
from torchscale.report.values import TableValue, shortened
from torchscale.util.units import format_percent, format_seconds

_DRAWN_SHARE = 0.001
"""A part below this share of the step would be thinner than a pixel in the chart; the table lists
it."""


def lost_time_section(summary: RunSummary) -> Section:
    """Where the time goes at each count, stacked."""
    lines = [line for found in panels(summary.measured).values() for line in found]
    lossy = [line for line in lines if any(cell.decomposition for cell in line)]
    if len(lossy) <= MAX_PANELS:
        drawn = lossy
    else:
        drawn = sorted(lossy, key=_most_lost, reverse=True)[:MAX_PANELS]
    if not lossy:
        return Section("Where the time goes", "lost", ())
    rows = tuple(
        _lost_row(cell) for line in lossy for cell in line if cell.decomposition is not None
    )
    columns = (
        *identity_columns(summary),
        STEP_MEAN.column,
        Column("ideal", True),
        *(part.column for part in LOST_PARTS),
    )
    text = (
        "The mean step at each device count: the ideal is the step at the smallest count; the "
        "other parts are the time added at this count, as means over ranks and launches. Compute: "
        "forward, backward and optimizer take longer. Straggler wait: waiting in gradient sync for "
        "ranks that arrive later. Exposed communication: gradient sync that does not overlap with "
        "compute, once all ranks have arrived. The parts add up to the measured step, and ideal ÷ "
        "mean step is the efficiency."
    )
    blocks: list[Block] = [
        Paragraph(text),
        ChartGrid(tuple(_lost_chart(line, summary) for line in drawn)),
    ]
    if len(lossy) > MAX_PANELS:
        words = (
            f"Charts show the {MAX_PANELS} of {len(lossy)} series that lose most; the table lists "
            "all."
        )
        blocks.append(Paragraph(words, of_charts=True))
    blocks.append(Table("Parts of the mean step", columns, rows))
    unexplained = [cell for line in lossy for cell in line if _unexplained(cell)]
    if unexplained:
        names = ", ".join(shortened(cell.cell.id) for cell in unexplained[:4])
        blocks.append(
            Paragraph(
                f"More than {format_percent(UNEXPLAINED_LIMIT, 0)} of the step is unexplained in "
                f"{names}."
            )
        )
    return Section("Where the time goes", "lost", tuple(blocks), ReportPart.CAUSES, _key(lossy))


def _key(lines: Sequence[Sequence[TrainingSummary]]) -> str:
    """The largest part of any step that scaling adds."""
    parts = [
        (part.share(lost), part.heading)
        for line in lines
        for cell in line
        if (lost := cell.decomposition) is not None
        for part in LOST_PARTS
    ]
    share, name = max(parts)
    if share > 0:
        return f"{name.removeprefix('+ ')} adds up to {format_percent(share)} of the step"
    return "no part grew"


def _most_lost(line: Sequence[TrainingSummary]) -> float:
    """The largest share of a step that a count adds to the ideal."""
    return max(
        (1 - lost.ideal / lost.step for cell in line if (lost := cell.decomposition) is not None),
        default=0.0,
    )


def _unexplained(cell: TrainingSummary) -> bool:
    lost = cell.decomposition
    return lost is not None and abs(lost.unexplained) > UNEXPLAINED_LIMIT * lost.step


def _lost_chart(line: Sequence[TrainingSummary], summary: RunSummary) -> StackedChart:
    cell = line[0].cell
    found = [
        (item.cell.world_size, item.decomposition)
        for item in line
        if item.decomposition is not None
    ]
    base_count = found[0][1].baseline_world_size
    base = next(
        item.figures.parts.step
        for item in line
        if item.figures is not None and item.figures.parts is not None
    )
    bars = (str(base_count), *(str(count) for count, _ in found))
    gains = [sum(min(0.0, part.seconds(lost)) for part in LOST_PARTS) for _, lost in found]
    ideal = (
        base * 1e3,
        *((lost.ideal + gain) * 1e3 for (_, lost), gain in zip(found, gains, strict=True)),
    )
    # Parts below zero would hang under the axis beneath a full ideal step; taken off it, the bar
    # ends at the step.
    shorter = any(
        -gain >= _DRAWN_SHARE * lost.step for (_, lost), gain in zip(found, gains, strict=True)
    )
    parts = [BarLayer(f"step at {base_count}" + ", less what is faster" * shorter, ideal)]
    for style, part in enumerate(LOST_PARTS):
        if any(part.share(lost) >= _DRAWN_SHARE for _, lost in found):
            values = (0.0, *(max(0.0, part.seconds(lost)) * 1e3 for _, lost in found))
            parts.append(BarLayer(part.heading, values, style))
    title = f"{panel_title(cell)}, {batch_label(cell)}"
    return StackedChart(
        name=chart_name("lost", title),
        title=title,
        summary=f"Parts of the mean step by number of {device_noun(summary)} for {title}.",
        x_label=device_noun(summary),
        y_label="mean step, ms",
        bars=bars,
        parts=tuple(parts),
    )


def _lost_row(cell: TrainingSummary) -> tuple[TableValue, ...]:
    lost = cell.decomposition
    assert lost is not None  # noqa: S101 - only such cells come here; this tells the type checker
    return (
        *identity_values(cell.cell),
        STEP_MEAN.of(cell),
        TableValue(format_seconds(lost.ideal), lost.ideal),
        *(part.of(lost) for part in LOST_PARTS),
    )
