"""Cost of training in money and energy."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.summary.cost import Cost, cost_of
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import (
    Block,
    Chart,
    ChartGrid,
    ChartSeries,
    Column,
    Group,
    Paragraph,
    Section,
    Table,
    TableValue,
    chart_name,
    only_if,
    optional_value,
)
from torchscale.report.sections.selection import Line, shown_panels
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
    columns = [Column("cell", prose=True)]
    if price is not None:
        columns += [
            Column(title, True)
            for title in ("$/hour", "samples/$", "tokens/$", "$ per million samples")
        ]
    if energy:
        columns += [Column(title, True) for title in ("samples/joule", "kWh per million samples")]
    rows = tuple(
        _row(cell, cost, with_price=price is not None, with_energy=energy) for cell, cost in costs
    )
    blocks: list[Block] = [Paragraph(_note(summary, price, energy=energy))]
    if price is not None:
        charts = [_chart(title, lines, price, summary) for title, lines in shown_panels(summary)]
        blocks.append(ChartGrid(tuple(charts)))
    blocks.append(Table("Cost", tuple(columns), rows, searchable=True))
    return Section("Cost", "cost", tuple(blocks), Group.RESULTS, _key([cost for _, cost in costs]))


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


def _row(
    cell: TrainingSummary, cost: Cost, *, with_price: bool, with_energy: bool
) -> tuple[TableValue, ...]:
    prices = (
        cost.dollars_per_hour,
        cost.samples_per_dollar,
        cost.tokens_per_dollar,
        cost.dollars_per_million_samples,
    )
    energies = (cost.samples_per_joule, cost.kwh_per_million_samples)
    shown = (*only_if(with_price, *prices), *only_if(with_energy, *energies))
    return (
        TableValue(cell_label(cell.cell)),
        *(optional_value(value, format_rate) for value in shown),
    )


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
