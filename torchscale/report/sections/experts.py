"""How evenly tokens go to experts, and to the devices that hold them."""

from __future__ import annotations

from torchscale.analysis.summary.run import RunSummary
from torchscale.report.document import Paragraph, ReportPart, Section
from torchscale.report.table import ColumnOf, table_of
from torchscale.report.text.run_labels import identity_of
from torchscale.report.values import TableValue
from torchscale.schema.exports.experts import ExpertFigures
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
        return Section("Experts", "experts", (), ReportPart.CAUSES)
    spread = any(experts.degree > 1 for _, experts in cells)
    columns: tuple[ColumnOf[ExpertFigures], ...] = (
        ColumnOf("parameters", lambda one: one.parameters, _count),
        ColumnOf("active", lambda one: one.active_parameters, _count),
        ColumnOf("experts", lambda one: f"{one.chosen} of {one.experts} in {one.layers} layers"),
        ColumnOf("hottest", lambda one: one.peak, _times),
        ColumnOf("which", lambda one: f"layer {one.hottest.layer}, expert {one.hottest.expert}"),
        ColumnOf("mean of layers", lambda one: one.mean_peak, _times),
        ColumnOf("busiest device", _busiest, numeric=True, shown=spread),
        ColumnOf("time in experts", lambda one: one.step_share, format_percent),
    )
    identity = identity_of(summary, (cell.cell for cell, _ in cells))
    table = table_of("Experts", columns, [experts for _, experts in cells], identity)
    note = f"{_NOTE} {_SPREAD_NOTE}" if spread else _NOTE
    return Section(
        "Experts",
        "experts",
        (Paragraph(note), table),
        ReportPart.CAUSES,
        f"hottest expert {format_range([one.peak for _, one in cells], _times)} an even share",
    )


def _busiest(experts: ExpertFigures) -> TableValue:
    if experts.rank_peak is None:
        return TableValue("–")
    rank = experts.rank_shares.index(experts.rank_peak)
    return TableValue(f"{_times(experts.rank_peak)} (rank {rank})", experts.rank_peak)


def _times(share: float) -> str:
    return f"{share:.2f}×"


def _count(parameters: float) -> str:
    if parameters >= 1e9:
        return f"{parameters / 1e9:.1f} B"
    return f"{parameters / 1e6:.1f} M"
