"""A run's figures as CSV. Light: the sweep writes ``summary.csv`` after every launch."""

from __future__ import annotations

import csv
import io
import itertools
import operator
from collections.abc import Iterable, Sequence

from torchscale.analysis.kinds import AnySummary
from torchscale.analysis.summary.machine import MachineSummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.config.strategy import strategy_label
from torchscale.report.kinds import report_kind
from torchscale.schema.exports.summary_row import SUMMARY_COLUMNS, ColumnValue, SummaryRow
from torchscale.schema.state import State
from torchscale.util.interval_text import Interval, finite


def summary_csv(summary: RunSummary) -> str:
    """One row a cell; an empty field was not measured."""
    return SummaryCsv().text(summary)


class SummaryCsv:
    """:func:`summary_csv` of a run that is being measured: only rows of cells whose summary has
    changed since the last call are formatted again."""

    def __init__(self) -> None:
        self._cells: list[AnySummary | None] = []
        self._lines: list[str] = []

    def text(self, summary: RunSummary) -> str:
        """The whole file. Every call takes the same plan."""
        cells = summary.in_plan_order
        if not self._cells:
            self._cells, self._lines = [None] * len(cells), [""] * len(cells)
        # Runs through all cells after every launch, so it is left to the interpreter's own loops.
        for place in itertools.compress(
            range(len(cells)), map(operator.is_not, cells, self._cells)
        ):
            self._cells[place], self._lines[place] = cells[place], _line(_row(cells[place]))
        return "".join((_line(SUMMARY_COLUMNS), *self._lines))


def _row(cell: AnySummary) -> Iterable[ColumnValue]:
    return report_kind(cell.cell.kind).csv_row(cell).values()


def _line(values: Iterable[ColumnValue]) -> str:
    output = io.StringIO()
    csv.writer(output, lineterminator="\n").writerow([_csv_value(value) for value in values])
    return output.getvalue()


def machine_row(summary: MachineSummary) -> dict[str, ColumnValue]:
    """A cell that measured the machine: how it ended, and its main figures as text; all of them are
    in the JSON."""
    return SummaryRow(
        cell_id=summary.cell.id,
        gpu_count=summary.cell.world_size,
        state=summary.state.value,
        reason=summary.reason,
        launches=summary.launches,
        kind=summary.cell.kind,
        outcome=report_kind(summary.cell.kind).outcome(summary)
        if summary.state is State.OK
        else None,
    ).columns()


def cell_row(summary: TrainingSummary) -> dict[str, ColumnValue]:
    """The columns of ``summary.csv`` for a training cell."""
    cell, figures, compute, efficiency = (
        summary.cell,
        summary.figures,
        summary.compute,
        summary.efficiency,
    )
    telemetry = None if figures is None else figures.telemetry
    gpus = () if figures is None else figures.gpus
    row = SummaryRow(
        cell_id=cell.id,
        model=cell.model,
        batch_size=cell.batch_size,
        gpu_count=cell.world_size,
        precision=cell.precision,
        strategy=strategy_label(cell.strategy),
        state=summary.state.value,
        samples_per_second=None if figures is None else figures.samples_per_second,
        samples_per_second_per_gpu=None
        if figures is None
        else figures.samples_per_second_per_device,
        tokens_per_second=None if figures is None else figures.tokens_per_second,
        step_time_p50_ms=None if figures is None else figures.steps.p50 * 1e3,
        step_time_p95_ms=None if figures is None else figures.steps.p95 * 1e3,
        step_time_p99_ms=None if figures is None else figures.steps.p99 * 1e3,
        efficiency=None if efficiency is None else efficiency.value,
        peak_memory_bytes=None if figures is None else figures.peak_memory_bytes,
        flags=" ".join(flag.value for flag in summary.flags),
        reason=summary.reason,
        scaling=cell.scaling,
        global_batch_size=cell.global_batch_size,
        optimizer=cell.optimizer,
        channels_last=cell.channels_last,
        compile=cell.compile,
        fused=cell.fused,
        gradient_accumulation=cell.gradient_accumulation,
        activation_checkpointing=cell.activation_checkpointing,
        data_source=cell.data_source,
        launches=summary.launches,
        efficiency_flags=""
        if efficiency is None
        else " ".join(flag.value for flag in efficiency.flags),
        kind=cell.kind,
        flops_per_second_per_gpu=None if compute is None else compute.flops_per_second,
        mfu=None if compute is None else compute.mfu,
        bound=None if compute is None else compute.bound,
        joules_per_step=None if figures is None else figures.joules_per_step,
        samples_per_joule=None if figures is None else figures.samples_per_joule,
        gpu_busy=_mean([gpu.busy for gpu in gpus]),
        gpu_power_watts=_mean([gpu.power_watts for gpu in gpus]),
        gpu_sm_clock_hertz=_mean([gpu.sm_clock_hertz for gpu in gpus]),
        cpu_busy=None if telemetry is None else telemetry.cpu_busy,
        host_memory_peak_bytes=None if telemetry is None else telemetry.memory_used_peak_bytes,
        sent_bytes_per_second=None if telemetry is None else telemetry.sent_bytes_per_second,
        received_bytes_per_second=None
        if telemetry is None
        else telemetry.received_bytes_per_second,
        step_time_mean_ms=None if figures is None else figures.step_mean * 1e3,
        planned_launches=summary.planned_launches,
        sessions=summary.sessions,
    )
    return {**row.columns(), **_interval_columns(summary)}


def _interval_columns(summary: TrainingSummary) -> dict[str, float | None]:
    """Columns of the ends of intervals; empty where nothing was measured."""
    figures, efficiency = summary.figures, summary.efficiency
    columns: dict[str, float | None] = {}
    if efficiency is not None:
        columns |= _ends("efficiency", efficiency.interval)
    if figures is None:
        return columns
    step = figures.step_interval
    return {
        **columns,
        **_ends("samples_per_second", figures.rate_interval(figures.samples_per_second)),
        **_ends(
            "samples_per_second_per_gpu",
            figures.rate_interval(figures.samples_per_second_per_device),
        ),
        **_ends("tokens_per_second", figures.rate_interval(figures.tokens_per_second)),
        **_ends("step_time_mean_ms", None if step is None else (step[0] * 1e3, step[1] * 1e3)),
    }


def _ends(name: str, interval: Interval | None) -> dict[str, float | None]:
    if interval is None:
        return {}
    return {f"{name}_low": interval[0], f"{name}_high": finite(interval[1])}


def _mean(values: Sequence[float | None]) -> float | None:
    """Of those that were read."""
    read = [value for value in values if value is not None]
    return sum(read) / len(read) if read else None


def _csv_value(value: ColumnValue) -> ColumnValue:
    """Spreadsheets run text that starts like a formula; an apostrophe stops them."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value
