"""How evenly tokens go to experts, and to the devices that hold them."""

from __future__ import annotations

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.experts import ExpertFigures
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import (
    Column,
    Group,
    Paragraph,
    Section,
    Table,
    TableValue,
    only_if,
    optional_value,
)
from torchscale.report.text.labels import identity_values
from torchscale.report.text.run_labels import identity_columns
from torchscale.util.units import format_percent
from torchscale.util.words import format_range

_NOTE = (
    "Tokens per expert over the whole measurement, relative to an even split (1.00×). Hottest: the "
    "expert with most tokens of any layer; mean of layers: the expert with most of each layer, on "
    "average. Active parameters are those that a token is computed with. Time in experts is their "
    "matrix products in both passes, mean over devices, without sending tokens."
)
_SPREAD_NOTE = (
    "Busiest device: tokens at the experts of the device with most. The others wait for it in each "
    "layer, so that an even split would gain what its further tokens take; the diagnosis says how "
    "much."
)


def experts_section(summary: RunSummary) -> Section:
    """Tokens per expert and device of every cell whose model has experts; empty without any."""
    cells = [
        (cell, cell.figures.experts)
        for cell in summary.measured
        if cell.figures is not None and cell.figures.experts is not None
    ]
    if not cells:
        return Section("Experts", "experts", (), Group.CAUSES)
    spread = any(experts.degree > 1 for _, experts in cells)
    columns = (
        *identity_columns(summary),
        Column("parameters", True),
        Column("active", True),
        Column("experts"),
        Column("hottest", True),
        Column("which"),
        Column("mean of layers", True),
        *only_if(spread, Column("busiest device", True)),
        Column("time in experts", True),
    )
    rows = tuple(_row(cell, experts, spread=spread) for cell, experts in cells)
    note = f"{_NOTE} {_SPREAD_NOTE}" if spread else _NOTE
    return Section(
        "Experts",
        "experts",
        (Paragraph(note), Table("Experts", columns, rows)),
        Group.CAUSES,
        f"hottest expert {format_range([one.peak for _, one in cells], _times)} an even share",
    )


def _row(cell: TrainingSummary, experts: ExpertFigures, *, spread: bool) -> tuple[TableValue, ...]:
    hottest = experts.hottest
    busiest = TableValue("–")
    if experts.rank_peak is not None:
        rank = experts.rank_shares.index(experts.rank_peak)
        busiest = TableValue(f"{_times(experts.rank_peak)} (rank {rank})", experts.rank_peak)
    return (
        *identity_values(cell.cell),
        optional_value(experts.parameters, _count),
        optional_value(experts.active_parameters, _count),
        TableValue(f"{experts.chosen} of {experts.experts} in {experts.layers} layers"),
        TableValue(_times(experts.peak), experts.peak),
        TableValue(f"layer {hottest.layer}, expert {hottest.expert}"),
        TableValue(_times(experts.mean_peak), experts.mean_peak),
        *only_if(spread, busiest),
        optional_value(experts.step_share, format_percent),
    )


def _times(share: float) -> str:
    return f"{share:.2f}×"


def _count(parameters: float) -> str:
    if parameters >= 1e9:
        return f"{parameters / 1e9:.1f} B"
    return f"{parameters / 1e6:.1f} M"
