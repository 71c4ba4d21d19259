"""What telemetry read of the hosts and devices of each cell."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from torchscale.analysis.summary.run import RunSummary
from torchscale.analysis.training.summary import Figures, TrainingSummary
from torchscale.report.document import Block, Bullets, Paragraph, ReportPart, Section
from torchscale.report.table import ColumnOf, table_of
from torchscale.report.text.figures import ENERGY, SAMPLES_PER_JOULE
from torchscale.report.text.quantity import Quantity
from torchscale.report.text.run_labels import identity_of
from torchscale.report.values import only_if, shortened
from torchscale.schema.launch.telemetry import GpuUse, Telemetry
from torchscale.util.units import (
    format_byte_rate,
    format_bytes,
    format_whole_percent,
)
from torchscale.util.words import format_range

_MAX_HOSTS = 16
"""Maximum number of hosts of a cell over many: those that differ are on top, and more rows would
bury the other cells."""
_Read = tuple[TrainingSummary, str, Telemetry]
"""A cell, one of its hosts (empty where there is one), and what was read of it."""


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
    columns: tuple[ColumnOf[_Read], ...] = (
        ColumnOf("host", lambda row: shortened(row[1]), shown=with_hosts, identifies=True),
        *only_if(with_gpus, *_GPU_COLUMNS),
        *_HOST_COLUMNS,
    )
    identity = identity_of(summary, (cell.cell for cell, _, _ in read))
    table = table_of("Telemetry", columns, read, identity)
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
    blocks: tuple[Block, ...] = (Paragraph(note), table)
    busy = [telemetry.cpu_busy for _, _, telemetry in read if telemetry.cpu_busy is not None]
    key = ""
    if busy:
        key = f"CPUs {format_range(busy, format_whole_percent)} busy"
    return Section(
        "Telemetry",
        "telemetry",
        (*blocks, *only_if(missing, Bullets(missing))),
        ReportPart.CAUSES,
        key,
        on_paper=with_gpus,
    )


def _machines(figures: Figures) -> Sequence[tuple[str, Telemetry | None]]:
    """Host and telemetry of each node, those first that differ most from the median of all; of a
    single node, without its name."""
    if not figures.nodes:
        return [("", figures.telemetry)]
    read = [(node.hostname, node.telemetry) for node in figures.nodes if node.telemetry is not None]
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


def _highest_of_gpus(pick: Callable[[GpuUse], float | None]) -> Callable[[Telemetry], float | None]:
    return lambda telemetry: max(
        (value for gpu in telemetry.gpus if (value := pick(gpu)) is not None), default=None
    )


def _column(
    title: str, value: Callable[[Telemetry], float | None], text: Callable[[float], str]
) -> ColumnOf[_Read]:
    return ColumnOf(title, lambda row: value(row[2]), text)


def _energy(quantity: Quantity) -> ColumnOf[_Read]:
    return ColumnOf(quantity.heading, lambda row: quantity.of(row[0]), numeric=True)


_GPU_COLUMNS = (
    _column("GPU busy", _mean_of_gpus(lambda gpu: gpu.busy), format_whole_percent),
    _column("GPU memory", _highest_of_gpus(lambda gpu: gpu.memory_used_peak_bytes), format_bytes),
    _column("power", _mean_of_gpus(lambda gpu: gpu.power_watts), "{:.0f} W".format),
    _column(
        "SM clock",
        _mean_of_gpus(lambda gpu: gpu.sm_clock_hertz),
        lambda hertz: f"{hertz / 1e6:.0f} MHz",
    ),
    _column(
        "hottest", _highest_of_gpus(lambda gpu: gpu.temperature_peak_celsius), "{:.0f} °C".format
    ),
    _column("throttled", _highest_of_gpus(lambda gpu: gpu.throttled_share), format_whole_percent),
    _energy(ENERGY),
    _energy(SAMPLES_PER_JOULE),
)
_HOST_COLUMNS = (
    _column("CPUs busy", lambda use: use.cpu_busy, format_whole_percent),
    _column("host memory", lambda use: use.memory_used_peak_bytes, format_bytes),
    _column("sent", lambda use: use.sent_bytes_per_second, format_byte_rate),
    _column("received", lambda use: use.received_bytes_per_second, format_byte_rate),
)
