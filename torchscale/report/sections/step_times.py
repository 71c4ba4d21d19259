"""Step times: their distribution, and the phases of a step."""

from __future__ import annotations

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.document import (
    ChartGrid,
    Column,
    Paragraph,
    Section,
    Table,
    TableValue,
    optional_value,
)
from torchscale.report.sections.charts import distribution_charts
from torchscale.report.sections.workloads import bubble_values
from torchscale.report.text.labels import (
    identity_columns,
    identity_values,
)
from torchscale.util.units import format_seconds


def step_times_section(summary: RunSummary) -> Section:
    """Step-time distributions, quantiles and phases; empty where nothing was measured."""
    charts = distribution_charts(summary)
    if not charts:
        return Section("Step times", "steps", ())
    piped = any(cell.figures is not None and cell.figures.bubble is not None for cell in summary.measured)
    compiled = any(cell.cell.compile for cell in summary.measured)
    rows = tuple(_step_row(cell, piped=piped, compiled=compiled) for cell in summary.measured)
    columns = (
        *identity_columns(summary),
        Column("p50", True),
        Column("p95", True),
        Column("p99", True),
        Column("slowest", True),
        Column("data wait", True),
        Column("forward", True),
        Column("backward", True),
        Column("exposed sync", True),
        Column("optimizer", True),
        *((Column("bubble", True), Column("scheduled", True)) if piped else ()),
        *((Column("compiling", True),) if compiled else ()),
    )
    note = (
        "A step lasts from the end of one optimizer step to the end of the next; with several ranks, the slowest "
        "rank counts. Phases are means over ranks. Backward ends when the last gradient is computed. Exposed sync "
        "is gradient sync that does not overlap with backward, plus the sync of buffers; where it is –, backward "
        "includes it."
    )
    if piped:
        note += (
            " Bubble: share of the pipeline's passes in which a rank's stages are idle; scheduled: the share that "
            "the schedule implies."
        )
    if compiled:
        note += " Compiling: time spent in torch.compile, excluded from step times."
    return Section(
        "Step times",
        "steps",
        (Paragraph(note), ChartGrid(tuple(charts)), Table("Step times and phases", columns, rows)),
    )


def _step_row(cell: TrainingSummary, *, piped: bool, compiled: bool) -> tuple[TableValue, ...]:
    figures = cell.figures
    assert figures is not None  # noqa: S101 - only measured cells come here; this tells the type checker
    phases = figures.phases
    quantiles = (figures.step_p50, figures.step_p95, figures.step_p99, figures.step_maximum)
    parts = (phases.data_wait, phases.forward, phases.backward, phases.sync, phases.optimizer)
    return (
        *identity_values(cell.cell),
        *(optional_value(seconds, format_seconds) for seconds in (*quantiles, *parts)),
        *(bubble_values(cell) if piped else ()),
        *((optional_value(figures.compile_seconds, format_seconds),) if compiled else ()),
    )
