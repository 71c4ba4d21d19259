"""One side of a comparison in words: its cells, its metrics, when it was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torchscale.config.choices import Metric
from torchscale.report.text.labels import batch_label, panel_title
from torchscale.report.text.times import format_days
from torchscale.report.values import shortened
from torchscale.schema.cells.kinds import AnyCell, as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.util.units import (
    format_byte_rate,
    format_bytes,
    format_flops,
    format_rate,
    format_seconds,
)
from torchscale.util.words import in_brackets, plural

METRIC_LABELS = {
    Metric.THROUGHPUT: "samples/s",
    Metric.STEPS: "steps/s",
    Metric.STEP_P95: "step p95, per launch",
    Metric.MEMORY: "peak memory",
    Metric.ENERGY: "samples/joule",
    Metric.COST: "samples/$",
    Metric.BUSBW: "bus bandwidth",
    Metric.COMPUTE: "matmul rate",
    Metric.COPY: "copy bandwidth",
    Metric.SAVE: "checkpoint saved at",
    Metric.LOAD: "checkpoint loaded at",
    Metric.STOP: "stop for a checkpoint",
    Metric.STOP_ASYNC: "stop for an asynchronous checkpoint",
}
_UNITS: Mapping[Metric, Callable[[float], str]] = {
    Metric.STEP_P95: format_seconds,
    Metric.MEMORY: format_bytes,
    Metric.BUSBW: format_byte_rate,
    Metric.COPY: format_byte_rate,
    Metric.SAVE: format_byte_rate,
    Metric.LOAD: format_byte_rate,
    Metric.STOP: format_seconds,
    Metric.STOP_ASYNC: format_seconds,
    Metric.COMPUTE: format_flops,
}


def measured_at(sides: Sequence[ResultSet]) -> list[str]:
    """When each side was measured: days; to the minute where two sides have the same days."""
    days = [measured_days(side) for side in sides]
    if len(set(days)) == len(days):
        return days
    return [_minutes(side) or day for side, day in zip(sides, days, strict=True)]


def _minutes(side: ResultSet) -> str:
    """``2026-11-20 10:01 to 10:25 UTC``; empty where unknown."""
    times = sorted(
        launch.started_at for cell in side.cells for launch in cell.launches if launch.started_at
    )
    if not times:
        return ""
    first, last = (shortened(time[:16].replace("T", " ")) for time in (times[0], times[-1]))
    end = last
    if last[:10] == first[:10]:
        end = last[11:]
    if last == first:
        return f"{first} UTC"
    return f"{first} to {end} UTC"


def measured_days(side: ResultSet) -> str:
    """``2026-11-20``, or ``2026-11-20 to 2026-11-22``; empty where unknown."""
    launches = (
        launch.started_at for cell in side.cells for launch in cell.launches if launch.started_at
    )
    return format_days(launches) or side.created_at[:10]


def format_level(metric: Metric, value: float) -> str:
    """A value with its unit."""
    return _UNITS.get(metric, format_rate)(value)


def metric_label(metric: Metric, detail: str) -> str:
    """``samples/s``, or ``bus bandwidth all_reduce fp32``."""
    if detail:
        return f"{METRIC_LABELS[metric]} {detail}"
    return METRIC_LABELS[metric]


def result_label(cell: ResultCell) -> str:
    """Everything that distinguishes a cell from the others, in one line."""
    return cell_text(cell.cell)


def cell_text(cell: AnyCell) -> str:
    """Everything that distinguishes a cell by itself from others, in one line."""
    return shortened(", ".join(label_parts(cell)))


def label_parts(cell: AnyCell) -> list[str]:
    """Model, batch and devices, or what a machine cell is known by."""
    trained = as_kind(cell, TrainingCell)
    if trained is not None:
        return [panel_title(trained), batch_label(trained), plural(trained.world_size, "device")]
    return [cell.title, *cell.settings, f"n={cell.world_size}"]


def format_state(cell: ResultCell) -> str:
    """``skipped (needs 4 devices)``."""
    return cell.state.value + in_brackets(cell.reason)
