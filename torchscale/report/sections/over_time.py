"""A few cells in detail: step time by rank, the measurement over time, and telemetry."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.analysis.training.telemetry import gpu_uuids
from torchscale.analysis.training.throughput import batch_step_seconds
from torchscale.report.charts import AnyChart, Chart, ChartSeries, chart_name
from torchscale.report.document import Block, ChartGrid, Paragraph, ReportPart, Section
from torchscale.report.sections.selection import MAX_LINES, detailed_cells, spread_out
from torchscale.report.text.labels import batch_label, panel_title
from torchscale.report.text.run_labels import device_noun
from torchscale.schema.launch.telemetry import GpuReading, Reading
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.run.content import LaunchDetail
from torchscale.util.words import plural

_MAX_POINTS = 240
"""Points of a line: about one for every two pixels of a chart."""


def over_time_section(summary: RunSummary, details: Mapping[str, LaunchDetail]) -> Section:
    """Charts of the cells for which there are details; empty without any."""
    charts: list[AnyChart] = []
    for cell in detailed_cells(summary):
        detail = details.get(cell.cell.id)
        if detail is not None and cell.figures is not None:
            charts += _cell_charts(cell, detail, summary)
    if not charts:
        return Section("Ranks and time", "time", ())
    text = (
        "The first launch of selected cells: for each model and setting, the cell with the "
        "costliest finding at the largest device count. Step by rank: step times of each rank. "
        "Over the measurement: mean step time of each batch of steps, and each rank's compute "
        "time; a straggler lies above the others, drift is a slope. Telemetry: sampled about once "
        "a second, including start-up and warm-up; the dashed lines mark the measured steps."
    )
    blocks: tuple[Block, ...] = (Paragraph(text, of_charts=True), ChartGrid(tuple(charts)))
    key = f"{plural(len(details), 'cell')} in detail"
    return Section("Ranks and time", "time", blocks, ReportPart.CAUSES, key, on_paper=False)


def _cell_charts(cell: TrainingSummary, detail: LaunchDetail, summary: RunSummary) -> list[Chart]:
    count = cell.cell.world_size
    title = (
        f"{panel_title(cell.cell)}, {batch_label(cell.cell)}, {count} {device_noun(summary, count)}"
    )
    charts = [
        _by_rank(title, detail.result),
        _over_batches(title, detail.result),
        *_telemetry(title, detail),
    ]
    return [chart for chart in charts if chart is not None]


def _by_rank(title: str, result: TrainingResult) -> Chart | None:
    steps = result.rank_steps
    if len(steps) < 2:
        return None
    ranks = tuple(float(rank.rank) for rank in result.ranks)
    quantiles = (("median", steps.p50), ("p95", steps.p95), ("slowest", steps.maximum))
    series = tuple(
        ChartSeries(name, ranks, tuple(seconds * 1e3 for seconds in values))
        for name, values in quantiles
    )
    return Chart(
        name=chart_name("rank-steps", title),
        title=f"{title}: step by rank",
        summary=f"Median, 95th percentile and maximum of each rank's steps, {title}.",
        x_label="rank",
        y_label="step time, ms",
        series=series,
        x_ticks=tuple(spread_out(ranks, 12)) if max(ranks) > 0 else (),
        lines=False,
    )


def _over_batches(title: str, result: TrainingResult) -> Chart | None:
    means = batch_step_seconds(result)
    if len(means) < 3:
        return None
    ends = list(itertools.accumulate(result.ranks[0].batches.seconds))[: len(means)]
    times = tuple(spread_out(ends, _MAX_POINTS))
    series = [
        ChartSeries(
            "step", times, tuple(seconds * 1e3 for seconds in spread_out(means, _MAX_POINTS))
        )
    ]
    if result.signals is not None:
        compute = result.signals.compute
    else:
        compute = ()
    if compute and all(len(rank) == len(means) for rank in compute):
        slowest = sorted(range(len(compute)), key=lambda rank: -statistics.fmean(compute[rank]))
        for rank in sorted(spread_out(slowest, MAX_LINES)):
            values = tuple(seconds * 1e3 for seconds in spread_out(compute[rank], _MAX_POINTS))
            series.append(ChartSeries(f"rank {rank}, compute", times, values))
    return Chart(
        name=chart_name("over-time", title),
        title=f"{title}: over the measurement",
        summary="Mean step of each batch of steps, and each rank's compute time, over the "
        f"measurement of {title}.",
        x_label="s since the first measured step",
        y_label="mean step, ms",
        series=tuple(series),
        markers=False,
    )


def _telemetry(title: str, detail: LaunchDetail) -> list[Chart]:
    readings = spread_out(detail.readings, _MAX_POINTS)
    if len(readings) < 2:
        return []
    ranks = detail.result.ranks
    zero = readings[0].time
    window: tuple[float, ...] = ()
    if ranks and ranks[0].measured_from is not None:
        zero = ranks[0].measured_from
        if ranks[0].measured_until is not None:
            window = (0.0, ranks[0].measured_until - zero)
    busy = [_line("CPUs", readings, zero, lambda reading: reading.cpu_busy, 100)]
    busy += [
        _line(f"GPU {uuid[:12]}", readings, zero, _of_gpu(uuid, lambda gpu: gpu.busy), 100)
        for uuid in spread_out(gpu_uuids(readings), MAX_LINES - 1)
    ]
    charts = [_telemetry_chart(title, "busy", "busy, %", busy, window)]
    pickers: tuple[tuple[str, str, Callable[[GpuReading], float | None], float], ...] = (
        ("power", "power, W", lambda gpu: gpu.power_watts, 1),
        ("clock", "SM clock, MHz", lambda gpu: gpu.sm_clock_hertz, 1e-6),
        ("temperature", "temperature, °C", lambda gpu: gpu.temperature_celsius, 1),
    )
    for what, label, pick, scale in pickers:
        lines = [
            _line(f"GPU {uuid[:12]}", readings, zero, _of_gpu(uuid, pick), scale)
            for uuid in spread_out(gpu_uuids(readings), MAX_LINES - 1)
        ]
        if what == "clock":
            lines.append(_throttled(readings, zero))
        charts.append(_telemetry_chart(title, what, label, lines, window))
    return [chart for chart in charts if chart is not None]


def _telemetry_chart(
    title: str, what: str, label: str, lines: Sequence[ChartSeries], window: Sequence[float]
) -> Chart | None:
    known = [line for line in lines if line.x]
    if not any(not line.marks for line in known):
        return None
    top = max(y for line in known for y in line.y)
    edges = [
        ChartSeries("measured steps", (at, at), (0.0, top), reference=True, legend=number == 0)
        for number, at in enumerate(window)
    ]
    return Chart(
        name=chart_name(f"telemetry-{what}", title),
        title=f"{title}: {what}",
        summary=f"{label} over the launch of {title}.",
        x_label="s since the first measured step",
        y_label=label,
        series=(*known, *edges),
        markers=False,
    )


def _of_gpu(
    uuid: str, pick: Callable[[GpuReading], float | None]
) -> Callable[[Reading], float | None]:
    return lambda reading: next((pick(gpu) for gpu in reading.gpus if gpu.uuid == uuid), None)


def _line(
    name: str,
    readings: Sequence[Reading],
    zero: float,
    pick: Callable[[Reading], float | None],
    scale: float,
) -> ChartSeries:
    points = [
        (reading.time - zero, value * scale)
        for reading in readings
        if (value := pick(reading)) is not None
    ]
    return ChartSeries(name, tuple(time for time, _ in points), tuple(value for _, value in points))


def _throttled(readings: Sequence[Reading], zero: float) -> ChartSeries:
    """Marks where a GPU gave a reason for lower clocks."""
    clocks = [
        (reading.time - zero, (gpu.sm_clock_hertz or 0.0) / 1e6)
        for reading in readings
        for gpu in reading.gpus
        if gpu.throttle_reasons
    ]
    return ChartSeries(
        "throttled",
        tuple(time for time, _ in clocks),
        tuple(clock for _, clock in clocks),
        marks=True,
    )
