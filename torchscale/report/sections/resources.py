"""Resources that training uses: memory by part, and telemetry."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from torchscale.analysis.summary.machine import MemorySummary
from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import Figures
from torchscale.report.document import (
    Block,
    Bullets,
    ChartGrid,
    Column,
    Group,
    Paragraph,
    Part,
    Section,
    StackedChart,
    Table,
    TableValue,
    only_if,
    optional_value,
    shortened,
)
from torchscale.report.text.figures import ENERGY, SAMPLES_PER_JOULE
from torchscale.report.text.labels import batch_label, identity_values, short_title
from torchscale.report.text.run_labels import identity_columns
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.telemetry import GpuUse, Telemetry
from torchscale.util.units import (
    byte_unit,
    format_byte_rate,
    format_bytes,
    format_change,
    format_percent,
)
from torchscale.util.words import format_range, plural

_MAX_HOSTS = 16
"""Maximum number of hosts of a cell over many: those that differ are on top, and more rows would
bury the other cells."""
_MAX_BARS = 12
"""Bars in a chart: more are narrower than their labels."""


def memory_section(summary: RunSummary) -> Section:
    """Memory of a step by part, measured and predicted; empty where it was not measured."""
    blocks: list[Block] = []
    measured = [cell for cell in summary.memory if cell.fullest is not None]
    if measured:
        blocks.append(
            Paragraph(
                "Bytes of tensors on the device that uses most. Activations are the most that "
                "autograd saved for the backward pass (where unknown, they are part of the rest). "
                "Tensor peak: the peak over two steps, including model construction. Predicted: "
                "computed without running; error: relative to the peak. What training takes in "
                "all, in Cells, also contains what libraries and the allocator hold."
            )
        )
        blocks.append(ChartGrid((_memory_chart(measured[:_MAX_BARS]),), on_paper=False))
        blocks.append(_memory_table(summary, measured))
    return Section("Memory", "memory", tuple(blocks), Group.MACHINE, _memory_key(measured))


def _memory_key(measured: Sequence[MemorySummary]) -> str:
    """The range of peaks, and how far predictions are off."""
    text = format_range(
        [cell.fullest.peak_bytes for cell in measured if cell.fullest], format_bytes, "peak "
    )
    errors = [abs(error) for cell in measured if (error := cell.prediction_error) is not None]
    return text + (f", predicted within {format_percent(max(errors))}" if errors else "")


def _memory_chart(measured: Sequence[MemorySummary]) -> StackedChart:
    names = ("parameters", "gradients", "optimizer states", "activations", "rest of the peak")
    parts: list[list[float]] = [[] for _ in names]
    for cell in measured:
        rank = cell.fullest
        assert rank is not None  # noqa: S101 - only measured ones come here
        known_parts = (
            rank.parts.parameters,
            rank.parts.gradients,
            rank.parts.optimizer_states,
            rank.parts.activations or 0,
        )
        for values, count in zip(
            parts, (*known_parts, max(0, rank.peak_bytes - sum(known_parts))), strict=True
        ):
            values.append(count)
    unit, size = byte_unit(max(map(sum, zip(*parts, strict=True)), default=0.0))
    return StackedChart(
        name="memory-parts",
        title="Memory of a device by part",
        summary="Tensor bytes of each cell by part, and the rest of the allocator's peak.",
        x_label=unit,
        y_label="",
        bars=tuple(_bar_name(cell.cell.training) for cell in measured),
        parts=tuple(
            Part(
                name,
                tuple(value / size for value in values),
                None if number == len(names) - 1 else number,
            )
            for number, (name, values) in enumerate(zip(names, parts, strict=True))
        ),
        horizontal=True,
    )


def _bar_name(cell: TrainingCell) -> str:
    return f"{short_title(cell)}, {batch_label(cell)}, {plural(cell.world_size, 'device')}"


def _memory_table(summary: RunSummary, measured: Sequence[MemorySummary]) -> Table:
    columns = (
        *identity_columns(summary),
        Column("parameters", True),
        Column("gradients", True),
        Column("optimizer", True),
        Column("activations", True),
        Column("tensor peak", True),
        Column("reserved", True),
        Column("predicted", True),
        Column("error", True),
    )
    rows = []
    for cell in measured:
        rank, predicted = cell.fullest, cell.predicted
        assert rank is not None  # noqa: S101 - only measured ones come here
        parts = (
            rank.parts.parameters,
            rank.parts.gradients,
            rank.parts.optimizer_states,
            rank.parts.activations,
        )
        counts = (
            *parts,
            rank.peak_bytes,
            rank.reserved_bytes,
            None if predicted is None else predicted.peak_bytes,
        )
        error = cell.prediction_error
        rows.append(
            (
                *identity_values(cell.cell.training),
                *(optional_value(count, format_bytes) for count in counts),
                optional_value(error, format_change),
            )
        )
    return Table("Memory by part", columns, tuple(rows))


def telemetry_section(summary: RunSummary) -> Section:
    """GPU, CPU and network use while each cell was measured; empty where nothing was sampled."""
    read = [
        (cell, host, telemetry)
        for cell in summary.measured
        if cell.figures
        for host, telemetry in _machines(cell.figures)
        if telemetry
    ]
    if not read:
        return Section("Telemetry", "telemetry", ())
    with_gpus = any(telemetry.gpus for _, _, telemetry in read)
    with_hosts = any(host for _, host, _ in read)
    gpu_columns = (
        Column("GPU busy", True),
        Column("GPU memory", True),
        Column("power", True),
        Column("SM clock", True),
        Column("hottest", True),
        Column("throttled", True),
        ENERGY.column,
        SAMPLES_PER_JOULE.column,
    )
    columns = (
        *identity_columns(summary),
        *only_if(with_hosts, Column("host", identifies=True)),
        *only_if(with_gpus, *gpu_columns),
        Column("CPUs busy", True),
        Column("host memory", True),
        Column("sent", True),
        Column("received", True),
    )
    rows = []
    for cell, host, telemetry in read:
        if with_gpus:
            gpus = _gpu_values(telemetry.gpus)
        else:
            gpus = ()
        energy = (ENERGY.of(cell), SAMPLES_PER_JOULE.of(cell))
        rows.append(
            (
                *identity_values(cell.cell),
                *only_if(with_hosts, TableValue(shortened(host))),
                *gpus,
                *only_if(with_gpus, *energy),
                optional_value(telemetry.cpu_busy, lambda share: format_percent(share, 0)),
                optional_value(telemetry.memory_used_peak_bytes, format_bytes),
                optional_value(telemetry.sent_bytes_per_second, format_byte_rate),
                optional_value(telemetry.received_bytes_per_second, format_byte_rate),
            )
        )
    note = (
        "Sampled about once a second by a separate process over the measured steps: means, except "
        "peaks for memory and temperature. Energy comes from the GPUs' energy counters where "
        "available. Network counts all interfaces, including loopback."
    )
    if with_hosts:
        note += (
            " Of several hosts those that differ most from their median come first, at most "
            f"{_MAX_HOSTS} a cell; energy is that of all together."
        )
    problems = dict.fromkeys(telemetry.problem for _, _, telemetry in read if telemetry.problem)
    missing = tuple(f"No GPU telemetry: {shortened(problem)}." for problem in problems)
    if not with_gpus and not missing:
        missing = ("No GPU was used, so power, energy and clocks are not available.",)
    blocks: tuple[Block, ...] = (Paragraph(note), Table("Telemetry", columns, tuple(rows)))
    busy = [telemetry.cpu_busy for _, _, telemetry in read if telemetry.cpu_busy is not None]
    key = ""
    if busy:
        key = f"CPUs {format_range(busy, lambda share: format_percent(share, 0))} busy"
    return Section(
        "Telemetry",
        "telemetry",
        (*blocks, *only_if(missing, Bullets(missing))),
        Group.CAUSES,
        key,
        on_paper=with_gpus,
    )


def _machines(figures: Figures) -> Sequence[tuple[str, Telemetry | None]]:
    """Host and telemetry of each node, those first that differ most from the median of all; of a
    single node, without its name."""
    if not figures.nodes:
        return [("", figures.telemetry)]
    read = [(host, telemetry) for host, telemetry in figures.nodes if telemetry is not None]
    medians = [
        statistics.median(values)
        if (values := [value for _, use in read if (value := pick(use)) is not None])
        else 0.0
        for pick in _COMPARED
    ]

    def difference(machine: tuple[str, Telemetry]) -> float:
        values = [
            (pick(machine[1]), median) for pick, median in zip(_COMPARED, medians, strict=True)
        ]
        return max(
            (abs(value / median - 1) for value, median in values if value is not None and median),
            default=0.0,
        )

    return sorted(read, key=difference, reverse=True)[:_MAX_HOSTS]


def _mean_of_gpus(pick: Callable[[GpuUse], float | None]) -> Callable[[Telemetry], float | None]:
    def mean(telemetry: Telemetry) -> float | None:
        known = [value for gpu in telemetry.gpus if (value := pick(gpu)) is not None]
        if known:
            return statistics.fmean(known)
        return None

    return mean


_COMPARED: tuple[Callable[[Telemetry], float | None], ...] = (
    _mean_of_gpus(lambda gpu: gpu.sm_clock_hertz),
    _mean_of_gpus(lambda gpu: gpu.power_watts),
    _mean_of_gpus(lambda gpu: gpu.busy),
    lambda telemetry: telemetry.cpu_busy,
)
"""Values by which hosts of equal work are compared."""


def _gpu_values(gpus: Sequence[GpuUse]) -> tuple[TableValue, ...]:
    def mean(pick: Callable[[GpuUse], float | None]) -> float | None:
        known = [value for gpu in gpus if (value := pick(gpu)) is not None]
        if known:
            return sum(known) / len(known)
        return None

    def highest(pick: Callable[[GpuUse], float | None]) -> float | None:
        return max((value for gpu in gpus if (value := pick(gpu)) is not None), default=None)

    return (
        optional_value(mean(lambda gpu: gpu.busy), lambda share: format_percent(share, 0)),
        optional_value(highest(lambda gpu: gpu.memory_used_peak_bytes), format_bytes),
        optional_value(mean(lambda gpu: gpu.power_watts), lambda watts: f"{watts:.0f} W"),
        optional_value(
            mean(lambda gpu: gpu.sm_clock_hertz), lambda hertz: f"{hertz / 1e6:.0f} MHz"
        ),
        optional_value(
            highest(lambda gpu: gpu.temperature_peak_celsius), lambda degrees: f"{degrees:.0f} °C"
        ),
        optional_value(
            highest(lambda gpu: gpu.throttled_share), lambda share: format_percent(share, 0)
        ),
    )
