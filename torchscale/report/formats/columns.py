"""The columns of ``summary.csv`` and of :meth:`torchscale.api.Results.cells`.

Times are in the unit of the name, rates per second, memory in bytes. Columns that begin with
``gpu_`` are means over GPUs, read beside the ranks. ``x_low`` and ``x_high`` are the ends of the
95 % interval of ``x``; ``x_high`` is empty where the interval has no upper end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter

from torchscale.analysis.training.summary import TrainingSummary
from torchscale.config.strategy import strategy_label
from torchscale.report.text.figures import (
    EFFICIENCY,
    ENERGY,
    PADDING,
    PEAK_ALLOCATED,
    SAMPLES_PER_JOULE,
    STEP_MEAN,
    STEP_P50,
    STEP_P95,
    STEP_P99,
    THROUGHPUT,
    THROUGHPUT_PER_DEVICE,
    TOKENS,
    UTILIZATION,
)
from torchscale.report.text.quantity import Quantity
from torchscale.schema.exports.training import Compute
from torchscale.schema.launch.telemetry import GpuUse, Telemetry
from torchscale.util.interval_text import finite

ColumnValue = str | int | float | bool | None
ColumnType = type[str] | type[int] | type[float] | type[bool]


@dataclass(frozen=True)
class SummaryColumn:
    """A column of ``summary.csv``.

    Attributes:
        name: Name in the header.
        kind: Type of its values; text where a column holds text and switches.
        value: Value of a training cell; ``None`` was not measured.
    """

    name: str
    kind: ColumnType
    value: Callable[[TrainingSummary], ColumnValue]


def _asked(name: str, kind: ColumnType) -> SummaryColumn:
    """What was asked of the cell under this name."""
    return SummaryColumn(name, kind, attrgetter(f"cell.{name}"))


def _set_by_us(name: str, kind: ColumnType) -> SummaryColumn:
    """The same of built-in models alone: a script sets it by itself."""
    asked = attrgetter(name)

    def value(summary: TrainingSummary) -> ColumnValue:
        if summary.cell.script is not None:
            return None
        found: ColumnValue = asked(summary.cell)
        return found

    return SummaryColumn(name, kind, value)


def _global_batch(summary: TrainingSummary) -> ColumnValue:
    if summary.cell.batch_size is None:
        return None
    return summary.cell.global_batch_size


def _figure(quantity: Quantity, kind: ColumnType = float) -> SummaryColumn:
    def value(summary: TrainingSummary) -> ColumnValue:
        number = quantity.value(summary)
        if number is None:
            return None
        return number * quantity.csv_scale

    return SummaryColumn(quantity.csv, kind, value)


def _ends(quantity: Quantity) -> tuple[SummaryColumn, ...]:
    def end(place: int) -> Callable[[TrainingSummary], ColumnValue]:
        def value(summary: TrainingSummary) -> ColumnValue:
            interval = quantity.ends(summary)
            if interval is None:
                return None
            return finite(interval[place] * quantity.csv_scale)

        return value

    return tuple(
        SummaryColumn(f"{quantity.csv}_{name}", float, end(place))
        for place, name in enumerate(("low", "high"))
    )


def _compute(name: str, kind: ColumnType, value: Callable[[Compute], ColumnValue]) -> SummaryColumn:
    def of_cell(summary: TrainingSummary) -> ColumnValue:
        if summary.compute is None:
            return None
        return value(summary.compute)

    return SummaryColumn(name, kind, of_cell)


def _telemetry(
    name: str, kind: ColumnType, value: Callable[[Telemetry], ColumnValue]
) -> SummaryColumn:
    """Read during the first launch, on its first node."""

    def of_cell(summary: TrainingSummary) -> ColumnValue:
        figures = summary.figures
        if figures is None or figures.telemetry is None:
            return None
        return value(figures.telemetry)

    return SummaryColumn(name, kind, of_cell)


def _gpus(name: str, value: Callable[[GpuUse], float | None]) -> SummaryColumn:
    """The mean over GPUs that say it."""

    def mean(summary: TrainingSummary) -> float | None:
        if summary.figures is None:
            return None
        read = [of_gpu for gpu in summary.figures.gpus if (of_gpu := value(gpu)) is not None]
        if not read:
            return None
        return sum(read) / len(read)

    return SummaryColumn(name, float, mean)


def _packing(summary: TrainingSummary) -> str | None:
    """How documents of different lengths became samples."""
    if summary.cell.lengths is None:
        return None
    return summary.cell.lengths.packing


def _efficiency_flags(summary: TrainingSummary) -> str:
    if summary.efficiency is None:
        return ""
    return " ".join(flag.value for flag in summary.efficiency.flags)


def _moved_by(summary: TrainingSummary) -> str | None:
    if summary.facts.transport is None:
        return None
    return summary.facts.transport.text


COLUMNS: tuple[SummaryColumn, ...] = (
    SummaryColumn("cell_id", str, lambda summary: summary.cell.id),
    _asked("model", str),
    _asked("batch_size", int),
    SummaryColumn("gpu_count", int, lambda summary: summary.cell.world_size),
    _asked("precision", str),
    SummaryColumn("strategy", str, lambda summary: strategy_label(summary.cell.strategy)),
    SummaryColumn("state", str, lambda summary: summary.state.value),
    _figure(THROUGHPUT),
    _figure(THROUGHPUT_PER_DEVICE),
    _figure(TOKENS),
    _figure(STEP_P50),
    _figure(STEP_P95),
    _figure(STEP_P99),
    _figure(EFFICIENCY),
    _figure(PEAK_ALLOCATED, int),
    SummaryColumn("flags", str, lambda summary: " ".join(flag.value for flag in summary.flags)),
    SummaryColumn("reason", str, lambda summary: summary.reason),
    _asked("scaling", str),
    SummaryColumn("global_batch_size", int, _global_batch),
    _asked("optimizer", str),
    _set_by_us("channels_last", bool),
    _set_by_us("compile", str),
    _set_by_us("fused", bool),
    _set_by_us("gradient_accumulation", int),
    _set_by_us("activation_checkpointing", str),
    _asked("data_source", str),
    SummaryColumn("launches", int, lambda summary: summary.launches),
    SummaryColumn("efficiency_flags", str, _efficiency_flags),
    _asked("kind", str),
    _compute("flops_per_second_per_gpu", float, lambda compute: compute.flops_per_second),
    _figure(UTILIZATION),
    _compute("bound", str, lambda compute: compute.bound),
    _figure(ENERGY),
    _figure(SAMPLES_PER_JOULE),
    _gpus("gpu_busy", lambda gpu: gpu.busy),
    _gpus("gpu_power_watts", lambda gpu: gpu.power_watts),
    _gpus("gpu_sm_clock_hertz", lambda gpu: gpu.sm_clock_hertz),
    _telemetry("cpu_busy", float, lambda telemetry: telemetry.cpu_busy),
    _telemetry("host_memory_peak_bytes", int, lambda telemetry: telemetry.memory_used_peak_bytes),
    _telemetry("sent_bytes_per_second", float, lambda telemetry: telemetry.sent_bytes_per_second),
    _telemetry(
        "received_bytes_per_second", float, lambda telemetry: telemetry.received_bytes_per_second
    ),
    _figure(STEP_MEAN),
    SummaryColumn("planned_launches", int, lambda summary: summary.planned_launches),
    SummaryColumn("outcome", str, lambda _: None),
    SummaryColumn("sessions", int, lambda summary: summary.sessions),
    *_ends(THROUGHPUT),
    *_ends(THROUGHPUT_PER_DEVICE),
    *_ends(TOKENS),
    *_ends(STEP_MEAN),
    *_ends(EFFICIENCY),
    SummaryColumn("packing", str, _packing),
    _figure(PADDING),
    SummaryColumn("moved_by", str, _moved_by),
)
"""Columns in the order of the file; new ones go to the end."""
SUMMARY_COLUMNS: tuple[str, ...] = tuple(column.name for column in COLUMNS)
"""Their names."""


def cell_row(summary: TrainingSummary) -> dict[str, ColumnValue]:
    """The row of a training cell."""
    return {column.name: column.value(summary) for column in COLUMNS}
