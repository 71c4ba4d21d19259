"""Throughput and efficiency over device counts."""

from __future__ import annotations

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.scaling import EXCELLENT, GOOD
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import Block, ChartGrid, Paragraph, ReportPart, Section
from torchscale.report.sections.charts import efficiency_charts, throughput_charts
from torchscale.report.sections.first_screen.first_chart import shows_every_series
from torchscale.report.sections.first_screen.headline import at_largest_count
from torchscale.report.sections.selection import selection_note
from torchscale.report.table import Column, Table
from torchscale.report.text.cell_values import efficiency_value
from torchscale.report.text.labels import identity_values
from torchscale.report.text.run_labels import device_noun, identity_columns, nodes_of
from torchscale.report.values import DASH
from torchscale.util.units import format_percent
from torchscale.util.words import format_range


def scaling_section(summary: RunSummary) -> Section:
    """Throughput and efficiency charts; empty where nothing was measured. Of a single count there
    is no chart: it would be a point, and tables have the number."""
    measured, efficiency = throughput_charts(summary), efficiency_charts(summary)
    throughput = [chart for chart in measured if len(chart.x_ticks) > 1]
    blocks: list[Block] = []
    if throughput:
        labels = sorted({cell.cell.scaling for cell in summary.measured})
        fixed = {"weak": "the batch per device is fixed", "strong": "the global batch is fixed"}
        kinds = " and ".join(f"{label} scaling ({fixed[label]})" for label in labels)
        blocks.append(
            Paragraph(
                f"Total throughput of all devices, {kinds}. Dashed: linear scaling from the "
                "smallest count."
                " Whiskers: 95 % intervals, over launches or, of a single launch, over its batches "
                "of steps; one that goes on above the frame ends there in an arrow."
                + (
                    " Small dots: single launches."
                    if any(cell.launches > 1 for cell in summary.measured)
                    else ""
                ),
                of_charts=True,
            )
        )
        blocks.append(ChartGrid(tuple(throughput)))
    notes = [_nodes_note(summary), selection_note(summary), _wide_intervals_note(summary)]
    if measured and any(notes):
        blocks.append(Paragraph(" ".join(note for note in notes if note), of_charts=True))
    if efficiency:
        blocks.append(
            Paragraph(
                "Efficiency: throughput at n devices ÷ (n × throughput at the smallest count ÷ "
                f"that count). Above {format_percent(EXCELLENT, 0)} is excellent, above "
                f"{format_percent(GOOD, 0)} good."
            )
        )
        blocks.append(_table(summary))
        if not shows_every_series(summary):
            blocks.append(ChartGrid(tuple(efficiency)))
    elif measured:
        blocks.append(
            Paragraph(
                "No scaling efficiency: it needs two measured device counts of the same model, "
                "batch size and setting."
            )
        )
    return Section("Scaling", "scaling", tuple(blocks), ReportPart.RESULTS, _key(summary))


def _table(summary: RunSummary) -> Table:
    """A row a series, a column a count."""
    scaled = [cell for cell in summary.measured if cell.efficiency is not None]
    counts = sorted({cell.cell.world_size for cell in scaled})
    series: dict[str, dict[int, TrainingSummary]] = {}
    for cell in scaled:
        series.setdefault(cell.cell.series, {})[cell.cell.world_size] = cell
    rows = tuple(
        (
            *identity_values(next(iter(line.values())).cell)[:-1],
            *(efficiency_value(line[count]) if count in line else DASH for count in counts),
        )
        for line in series.values()
    )
    nodes = {
        count: max(nodes_of(cell) for cell in scaled if cell.cell.world_size == count)
        for count in counts
    }
    by_count = (
        Column(f"{count} {device_noun(summary, count)}{_on_nodes(nodes[count])}", True)
        for count in counts
    )
    columns = (*identity_columns(summary)[:-1], *by_count)
    return Table("Efficiency by device count", columns, rows)


def _on_nodes(nodes: int) -> str:
    if nodes > 1:
        return f" ({nodes} nodes)"
    return ""


def _nodes_note(summary: RunSummary) -> str:
    """Which counts stay within one node; empty where all do."""
    inside = [cell.cell.world_size for cell in summary.measured if nodes_of(cell) <= 1]
    across = [cell.cell.world_size for cell in summary.measured if nodes_of(cell) > 1]
    if not across:
        return ""
    noun = device_noun(summary)
    within = "From "
    if inside:
        within = f"Up to {max(inside)} {noun} the link is within one node (intra); from "
    return (
        f"{within}{min(across)} {noun} on it is between nodes (inter); the charts draw the "
        "boundary."
    )


def _key(summary: RunSummary) -> str:
    """Efficiencies at the largest count."""
    cells = at_largest_count(summary.measured)
    if not cells:
        return "one device count"
    count = cells[0].cell.world_size
    values = [cell.efficiency.value for cell in cells if cell.efficiency is not None]
    return f"{format_range(values, format_percent)} at {count} {device_noun(summary, count)}"


def _wide_intervals_note(summary: RunSummary) -> str:
    wide = [cell.efficiency is not None and cell.efficiency.is_vague for cell in summary.measured]
    if not any(wide):
        return ""
    return (
        "Some intervals are wider than the value itself; more launches (benchmark.repeats) or an "
        "idle machine narrow them."
    )
