"""Throughput and efficiency over device counts."""

from __future__ import annotations

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.scaling import EXCELLENT, GOOD
from torchscale.report.document import Block, ChartGrid, Paragraph, Section
from torchscale.report.sections.charts import efficiency_charts, overview_chart, throughput_charts
from torchscale.report.sections.selection import selection_note
from torchscale.util.units import format_percent


def scaling_section(summary: RunSummary) -> Section:
    """Throughput and efficiency charts; empty where nothing was measured."""
    throughput, efficiency = throughput_charts(summary), efficiency_charts(summary)
    blocks: list[Block] = []
    if throughput:
        labels = sorted({cell.cell.scaling for cell in summary.measured})
        fixed = {"weak": "the batch per device is fixed", "strong": "the global batch is fixed"}
        kinds = " and ".join(f"{label} scaling ({fixed[label]})" for label in labels)
        blocks.append(
            Paragraph(
                f"Total throughput of all devices, {kinds}. Dashed: linear scaling from the smallest count.",
                of_charts=True,
            )
        )
        blocks.append(ChartGrid(tuple(throughput)))
        notes = [selection_note(summary), _missing_intervals_note(summary)]
        if any(notes):
            blocks.append(Paragraph(" ".join(note for note in notes if note), of_charts=True))
    if efficiency:
        blocks.append(
            Paragraph(
                "Efficiency: throughput at n devices ÷ (n × throughput at the smallest count ÷ that count). Above "
                f"{format_percent(EXCELLENT, 0)} is excellent, above {format_percent(GOOD, 0)} good."
            )
        )
        overview = overview_chart(summary)
        if overview is not None:
            blocks.append(ChartGrid((overview,)))
        blocks.append(ChartGrid(tuple(efficiency)))
    elif throughput:
        blocks.append(
            Paragraph(
                "No scaling efficiency: it needs two measured device counts of the same model, batch size and setting."
            )
        )
    return Section("Scaling", "scaling", tuple(blocks))


def _missing_intervals_note(summary: RunSummary) -> str:
    widths = [cell.figures.run_half_width for cell in summary.measured if cell.figures is not None]
    if not any(width is not None and width > 1 for width in widths):
        return ""
    return (
        "Confidence intervals wider than the value itself are not drawn; more launches (benchmark.repeats) or an "
        "idle machine narrow them."
    )
