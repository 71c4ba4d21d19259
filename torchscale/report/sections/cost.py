"""Cost of training in money and energy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchscale.analysis.summary.cost import Cost, cost_of
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.charts import Chart, ChartSeries, chart_name
from torchscale.report.document import Block, ChartGrid, Paragraph, ReportPart, Section
from torchscale.report.sections.selection import Line, shown_panels
from torchscale.report.table import ColumnOf, table_of
from torchscale.report.text.labels import batch_label, cell_label
from torchscale.report.text.run_labels import device_noun
from torchscale.util.units import format_rate
from torchscale.util.words import format_range


def cost_section(summary: RunSummary, price: float | None) -> Section:
    """Samples and tokens per dollar and per joule; empty where neither a price nor energy is
    known."""
    costs = [
        (cell, cost) for cell in summary.measured if (cost := cost_of(cell, price)) is not None
    ]
    if not costs:
        return Section("Cost", "cost", ())
    energy = any(cost.samples_per_joule is not None for _, cost in costs)
    priced = price is not None
    columns: tuple[ColumnOf[tuple[TrainingSummary, Cost]], ...] = (
        ColumnOf("cell", lambda row: cell_label(row[0].cell), prose=True),
        _rate("$/hour", lambda one: one.dollars_per_hour, shown=priced),
        _rate("samples/$", lambda one: one.samples_per_dollar, shown=priced),
        _rate("tokens/$", lambda one: one.tokens_per_dollar, shown=priced),
        _rate("$ per million samples", lambda one: one.dollars_per_million_samples, shown=priced),
        _rate("samples/joule", lambda one: one.samples_per_joule, shown=energy),
        _rate("kWh per million samples", lambda one: one.kwh_per_million_samples, shown=energy),
    )
    blocks: list[Block] = [Paragraph(_note(summary, price, energy=energy))]
    if price is not None:
        charts = [_chart(title, lines, price, summary) for title, lines in shown_panels(summary)]
        blocks.append(ChartGrid(tuple(charts)))
    blocks.append(table_of("Cost", columns, costs, searchable=True))
    return Section(
        "Cost", "cost", tuple(blocks), ReportPart.RESULTS, _key([cost for _, cost in costs])
    )


def _key(costs: Sequence[Cost]) -> str:
    dollars = [
        cost.dollars_per_million_samples
        for cost in costs
        if cost.dollars_per_million_samples is not None
    ]
    if dollars:
        return f"${format_range(dollars, format_rate)} per million samples"
    rates = [cost.samples_per_joule for cost in costs if cost.samples_per_joule is not None]
    return f"{format_range(rates, format_rate)} samples/joule"


def _note(summary: RunSummary, price: float | None, *, energy: bool) -> str:
    parts = []
    if price is not None:
        noun = device_noun(summary, 1)
        parts.append(
            f"At ${price:.2f} per {noun} and hour, from measured throughput; start-up time is not "
            "included."
        )
    if energy:
        parts.append(
            "Energy covers only the GPUs over the measured steps, not CPUs, fans and cooling."
        )
    else:
        parts.append("Energy was not measured.")
    return " ".join(parts)


def _rate(
    title: str, value: Callable[[Cost], float | None], *, shown: bool
) -> ColumnOf[tuple[TrainingSummary, Cost]]:
    return ColumnOf(title, lambda row: value(row[1]), format_rate, shown=shown)


def _chart(title: str, lines: Sequence[Line], price: float, summary: RunSummary) -> Chart:
    """Dollars per million samples against the number of devices: flat where training scales
    ideally."""
    series = []
    for line in lines:
        costs = [(cell.cell.world_size, cost_of(cell, price)) for cell in line]
        points = [(float(n), c.dollars_per_million_samples) for n, c in costs if c is not None]
        known = [(n, dollars) for n, dollars in points if dollars is not None]
        series.append(
            ChartSeries(
                batch_label(line[0].cell), tuple(n for n, _ in known), tuple(y for _, y in known)
            )
        )
    counts = tuple(sorted({float(cell.cell.world_size) for line in lines for cell in line}))
    return Chart(
        name=chart_name("cost", title),
        title=title,
        summary=f"Dollars per million samples against the number of {device_noun(summary)} for "
        f"{title}.",
        x_label=device_noun(summary),
        y_label="$ per million samples",
        series=tuple(series),
        x_ticks=counts,
    )
