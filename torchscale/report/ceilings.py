"""Parts of the report about the machine: collectives, ceilings, the roofline, memory, telemetry."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torchscale.analysis.ceilings import CollectivesSummary, HardwareSummary, MemorySummary
from torchscale.analysis.collectives import CollectiveFigures
from torchscale.analysis.hardware import HardwareFigures
from torchscale.analysis.results import CellSummary, RunSummary
from torchscale.analysis.roofline import Compute
from torchscale.report.ceiling_words import copy_words, fit_words, share_words
from torchscale.report.document import (
    Block,
    Bullets,
    Chart,
    ChartGrid,
    Column,
    Paragraph,
    Part,
    Section,
    Series,
    StackedChart,
    Table,
    Value,
    shortened,
)
from torchscale.report.words import batch_words, cell_words, chart_name, panel_title
from torchscale.schema.cell import Cell
from torchscale.schema.record import State
from torchscale.schema.telemetry import GpuUse
from torchscale.units import format_byte_rate, format_bytes, format_flops, format_percent, format_rate, format_seconds

_MAX_BARS = 12
_MAX_DISTINCT = 12
_DASH = Value("–")


def collectives_section(summary: RunSummary) -> Section:
    """Bus bandwidth over sizes, the link's latency and bandwidth, pairs and the verdict; empty without any sweep."""
    blocks: list[Block] = []
    for sweep in summary.collectives:
        if sweep.figures is not None and not sweep.cell.logs_choices:
            blocks += _sweep_blocks(sweep, sweep.figures)
    if blocks:
        blocks.insert(
            0,
            Paragraph(
                "Bandwidths as nccl-tests defines them: algorithm bandwidth is bytes ÷ time, bus bandwidth what the "
                "busiest link carries for it. Times are means over ranks of one timed loop; every element of every "
                "result was compared with what it must be."
            ),
        )
    return Section("Collectives", "collectives", tuple(blocks))


def _sweep_blocks(sweep: CollectivesSummary, figures: CollectiveFigures) -> list[Block]:
    cell = sweep.cell
    title = ", ".join([f"{cell.world_size} ranks over {figures.backend}", *cell.settings])
    lines = [
        Series(
            f"{curve.operation} {curve.dtype}" if len(cell.dtypes) > 1 else curve.operation,
            tuple(float(point.payload_bytes) for point in curve.points),
            tuple(point.busbw / 1e9 for point in curve.points),
        )
        for curve in figures.curves
        if curve.operation != "barrier" and all(point.busbw > 0 for point in curve.points)
    ]
    chart = Chart(
        name=chart_name("busbw", f"{title} {cell.id}"),
        title=title,
        summary=f"Bus bandwidth against message size for {title}.",
        x_label="message size, bytes",
        y_label="bus bandwidth, GB/s",
        series=tuple(lines[:_MAX_DISTINCT]),
        log=True,
    )
    blocks: list[Block] = [ChartGrid((chart,))] if lines else []
    columns = (
        Column("operation"),
        Column("type"),
        Column("smallest", True),
        Column("p95 there", True),
        Column("highest busbw", True),
        Column("at size", True),
        Column("spread of ranks", True),
        Column("latency and bandwidth"),
        Column("wrong", True),
    )
    rows = []
    for curve in figures.curves:
        first, peak = curve.points[0], curve.peak
        checked = [point.wrong_elements for point in curve.points if point.wrong_elements is not None]
        spread = max(point.rank_spread for point in curve.points)
        rows.append(
            (
                Value(curve.operation),
                Value(curve.dtype),
                Value(format_seconds(first.seconds), first.seconds),
                Value(format_seconds(first.p95), first.p95),
                Value(format_byte_rate(peak.busbw), peak.busbw) if peak.payload_bytes else _DASH,
                Value(format_bytes(peak.payload_bytes), peak.payload_bytes) if peak.payload_bytes else _DASH,
                Value(format_percent(spread, 0), spread),
                Value(fit_words(curve) or "–"),
                Value(str(sum(checked)), sum(checked)) if checked else _DASH,
            )
        )
    blocks.append(Table(f"Collectives, {title}", columns, tuple(rows)))
    if figures.pairs:
        blocks.append(_pairs_table(figures, title))
    said = [f"Not measured: {what}: {shortened(text)}" for what, text in figures.unsupported]
    if sweep.log is not None and sweep.log.transports:
        said.append(f"NCCL's transports: {', '.join(sweep.log.transports)}.")
    if sweep.verdict is not None:
        said.append(shortened(sweep.verdict.text))
        said += [f"Possible cause: {cause.text}; check: {cause.check}" for cause in sweep.verdict.causes]
    if said:
        blocks.append(Bullets(tuple(said)))
    if sweep.place is not None and sweep.place.topology:
        blocks.append(Paragraph(sweep.place.topology, code=True))
    return blocks


def _pairs_table(figures: CollectiveFigures, title: str) -> Table:
    pairs = {(pair.source, pair.target): pair for pair in figures.pairs}
    ranks = sorted({pair.source for pair in figures.pairs})
    rows = []
    for source in ranks:
        row = [Value(f"from {source}", source)]
        for target in ranks:
            pair = pairs.get((source, target))
            rate = None if pair is None else pair.payload_bytes / pair.seconds
            words = None if pair is None or rate is None else format_byte_rate(rate)
            row.append(_DASH if words is None else Value(words, rate))
        rows.append(tuple(row))
    columns = (Column("rank"), *(Column(f"to {rank}", True) for rank in ranks))
    size = format_bytes(figures.pairs[0].payload_bytes)
    return Table(f"Messages of {size} between every two ranks, {title}", columns, tuple(rows))


def hardware_section(summary: RunSummary) -> Section:
    """Products, copies and disks; empty where no ceiling was measured."""
    measured = [(one, one.figures) for one in summary.hardware if one.figures is not None]
    if not measured:
        return Section("Ceilings", "ceilings", ())
    columns = (
        Column("devices at once", True),
        Column("type"),
        Column("peak", True),
        Column("at m×n×k"),
        Column("cold caches", True),
        Column("typical", True),
        Column("slowest device", True),
    )
    products = [
        (
            Value(str(one.cell.world_size), one.cell.world_size),
            Value(rates.dtype),
            Value(format_flops(rates.peak), rates.peak),
            Value("×".join(map(str, rates.peak_shape))),
            _value(rates.cold, format_flops),
            Value(format_flops(rates.typical), rates.typical),
            Value(share_words(rates.slowest_device), rates.slowest_device),
        )
        for one, figures in measured
        for rates in figures.matmuls
    ]
    note = (
        "What a device reaches while as many work at once: matrix products of random numbers (peak: the fastest shape; "
        "typical: the median over shapes; both the median over time), and copies. Slowest device: against the mean."
    )
    copies = tuple(row for one, figures in measured for row in _copy_rows(one, figures))
    copy_columns = (
        Column("devices at once", True),
        Column("what"),
        Column("rate", True),
        Column("slowest device", True),
    )
    blocks: list[Block] = [Paragraph(note), Table("Matrix products", columns, tuple(products))]
    if copies:
        blocks.append(Table("Copies and disk", copy_columns, copies))
    return Section("Ceilings", "ceilings", tuple(blocks))


def _copy_rows(one: HardwareSummary, figures: HardwareFigures) -> list[tuple[Value, ...]]:
    count = Value(str(one.cell.world_size), one.cell.world_size)
    rows: list[tuple[Value, ...]] = [
        (
            count,
            Value(copy_words(rate)),
            Value(format_byte_rate(rate.bytes_per_second), rate.bytes_per_second),
            Value(share_words(rate.slowest_device), rate.slowest_device),
        )
        for rate in figures.copies
    ]
    disk = figures.disk
    if disk is not None:
        warm = f", {format_percent(disk.resident_share, 0)} in memory" if disk.resident_share else ""
        for what, seconds in (("written", disk.write_seconds), (f"read{warm}", disk.read_seconds)):
            rate = disk.payload_bytes / seconds
            rows.append(
                (count, Value(f"disk at {shortened(disk.path)}, {what}"), Value(format_byte_rate(rate), rate), _DASH)
            )
    return rows


def compute_section(summary: RunSummary) -> Section:
    """FLOP/s, MFU and the roofline of every training cell; empty where no operations were counted."""
    cells = [(cell, cell.compute) for cell in summary.measured if cell.compute is not None]
    if not cells:
        return Section("Compute", "compute", ())
    columns = (
        Column("cell", prose=True),
        Column("per step", True),
        Column("per device", True),
        Column("MFU", True),
        Column("HFU", True),
        Column("FLOP/byte", True),
        Column("roof", True),
        Column("bound by"),
        Column("roof ÷ achieved", True),
    )
    rows = tuple(_compute_row(cell, compute) for cell, compute in cells)
    peaks = dict.fromkeys(
        f"Peak of {cell.cell.precision}: {format_flops(compute.peak.flops_per_second)}, {compute.peak.source}."
        for cell, compute in cells
        if compute.peak is not None
    )
    note = (
        "Operations of the model's forward and backward passes, counted and not measured, without what activation "
        "checkpointing computes again; over the measured step they make FLOP/s, and against the device's peak MFU (HFU "
        "adds what is computed again). FLOP/byte counts what every operator reads and writes, as if nothing stayed in "
        "a cache; the roof is the lower of measured matrix products and FLOP/byte × measured copies, against what the "
        "passes alone achieve: below 1 where caches and fused operators save traffic, and far above it where neither "
        "ceiling holds the passes back but small operators and their launches."
    )
    missing = [] if peaks else ["No peak is known for this device, so there is no MFU: declare hardware.peak_flops, or "
                                "measure it with `torchscale hardware`."]  # fmt: skip
    blocks: list[Block] = [Paragraph(note), Table("Compute", columns, rows), Bullets((*peaks, *missing))]
    chart = _roofline(summary, cells)
    if chart is not None:
        blocks.insert(1, ChartGrid((chart,)))
    return Section("Compute", "compute", tuple(blocks))


def _compute_row(cell: CellSummary, compute: Compute) -> tuple[Value, ...]:
    return (
        Value(cell_words(cell.cell)),
        Value(format_flops(compute.flops_per_step).replace("/s", ""), compute.flops_per_step),
        Value(format_flops(compute.flops_per_second), compute.flops_per_second),
        _value(compute.mfu, format_percent),
        _value(compute.hfu, format_percent),
        _value(compute.intensity, format_rate),
        _value(compute.roof, format_flops),
        Value(compute.bound or "–"),
        _value(compute.headroom, lambda ratio: f"{ratio:.2f}"),
    )


def _roofline(summary: RunSummary, cells: Sequence[tuple[CellSummary, Compute]]) -> Chart | None:
    """The ceilings of the largest count, and the cells at it."""
    known = [one for one in summary.hardware if one.figures is not None]
    if not known:
        return None
    largest = max(known, key=lambda one: one.cell.world_size)
    figures = largest.figures
    placed = [
        (cell, compute.intensity, compute.passes_flops_per_second)
        for cell, compute in cells
        if compute.intensity is not None and compute.passes_flops_per_second is not None
    ]
    if figures is None or figures.memory_bytes_per_second is None or not placed:
        return None
    memory = figures.memory_bytes_per_second
    places = [intensity for _, intensity, _ in placed]
    roofs = []
    for dtype in dict.fromkeys(cell.cell.precision for cell, _, _ in placed):
        peak = figures.peak(dtype)
        if peak is not None:
            ridge = peak / memory
            x = (min(*places, ridge) / 2, ridge, max(*places, ridge) * 2)
            roofs.append(Series(f"roof {dtype}", x, tuple(min(peak, at * memory) / 1e9 for at in x), reference=True))
    points = [
        Series(f"{panel_title(cell.cell)}, {batch_words(cell.cell)}, n={cell.cell.world_size}", (at,), (rate / 1e9,))
        for cell, at, rate in placed[:_MAX_DISTINCT]
    ]
    return Chart(
        name="roofline",
        title="Roofline: forward and backward passes of each cell",
        summary="Achieved FLOP/s of each training cell over its arithmetic intensity, under the measured ceilings.",
        x_label="FLOP per byte",
        y_label="GFLOP/s per device",
        series=(*roofs, *points),
        log=True,
    )


def memory_section(summary: RunSummary) -> Section:
    """What steps take, by part, measured and predicted, and which batches ran out; empty where neither is known."""
    blocks: list[Block] = []
    measured = [one for one in summary.memory if one.fullest is not None]
    if measured:
        blocks.append(
            Paragraph(
                "Bytes on the fullest device. Parts are of tensors; activations the most that autograd kept for the "
                "backward pass; the peak is the allocator's over two steps, build-up included. Predicted: without "
                "running, against that peak."
            )
        )
        blocks.append(ChartGrid((_memory_chart(measured[:_MAX_BARS]),)))
        blocks.append(_memory_table(measured))
    frontier = _frontier(summary)
    if frontier is not None:
        blocks.append(frontier)
    return Section("Memory", "memory", tuple(blocks))


def _memory_chart(measured: Sequence[MemorySummary]) -> StackedChart:
    names = ("parameters", "gradients", "optimizer states", "activations", "rest of the peak")
    parts: list[list[float]] = [[] for _ in names]
    for one in measured:
        rank = one.fullest
        assert rank is not None  # noqa: S101 - only measured ones come here
        told = (rank.parts.parameters, rank.parts.gradients, rank.parts.optimizer_states, rank.parts.activations or 0)
        for values, count in zip(parts, (*told, max(0, rank.peak_bytes - sum(told))), strict=True):
            values.append(count / 2**20)
    return StackedChart(
        name="memory-parts",
        title="Memory of a device by part",
        summary="Tensor bytes of each cell by part, and what of the allocator's peak is none of them.",
        x_label="cell",
        y_label="MiB",
        bars=tuple(f"{number}" for number in range(1, len(measured) + 1)),
        parts=tuple(
            Part(name, tuple(values), None if number == len(names) - 1 else number)
            for number, (name, values) in enumerate(zip(names, parts, strict=True))
        ),
    )


def _memory_table(measured: Sequence[MemorySummary]) -> Table:
    columns = (
        Column("#", True),
        Column("cell", prose=True),
        Column("parameters", True),
        Column("gradients", True),
        Column("optimizer", True),
        Column("activations", True),
        Column("peak", True),
        Column("reserved", True),
        Column("predicted", True),
        Column("error", True),
    )
    rows = []
    for number, one in enumerate(measured, start=1):
        rank, predicted = one.fullest, one.predicted
        assert rank is not None  # noqa: S101 - only measured ones come here
        parts = (rank.parts.parameters, rank.parts.gradients, rank.parts.optimizer_states, rank.parts.activations)
        counts = (*parts, rank.peak_bytes, rank.reserved_bytes, None if predicted is None else predicted.peak_bytes)
        error = one.prediction_error
        rows.append(
            (
                Value(str(number), number),
                Value(cell_words(one.cell.training)),
                *(_value(count, format_bytes) for count in counts),
                _value(error, lambda share: f"{share:+.1%}".replace("%", " %")),
            )
        )
    return Table("Memory by part", columns, tuple(rows))


def _frontier(summary: RunSummary) -> Table | None:
    """Largest batch that ran and smallest that ran out of memory, where any did."""
    trained: list[tuple[Cell, State]] = [(cell.cell, cell.state) for cell in summary.cells]
    trained += [(one.cell.training, one.state) for one in summary.memory]
    groups: dict[tuple[str, int], list[tuple[int, State]]] = {}
    for cell, state in trained:
        groups.setdefault((panel_title(cell), cell.world_size), []).append((cell.batch_size, state))
    rows = []
    for (title, count), found in groups.items():
        failed = [batch for batch, state in found if state is State.OOM]
        if failed:
            fitted = max((batch for batch, state in found if state is State.OK), default=None)
            rows.append(
                (Value(title), Value(str(count), count), _value(fitted, str), Value(str(min(failed)), min(failed)))
            )
    if not rows:
        return None
    columns = (Column("model and setting", prose=True), Column("devices", True), Column("largest that ran", True),
               Column("smallest out of memory", True))  # fmt: skip
    return Table("Batch sizes at the edge of memory", columns, tuple(rows))


def telemetry_section(summary: RunSummary) -> Section:
    """What GPUs, processor and network did while each cell was measured; empty where nothing was read."""
    read = [(cell, cell.figures.telemetry) for cell in summary.measured if cell.figures and cell.figures.telemetry]
    if not read:
        return Section("Telemetry", "telemetry", ())
    with_gpus = any(telemetry.gpus for _, telemetry in read)
    gpu_columns = (
        Column("GPU busy", True),
        Column("GPU memory", True),
        Column("power", True),
        Column("SM clock", True),
        Column("hottest", True),
        Column("throttled", True),
        Column("joules/step", True),
        Column("samples/joule", True),
    )
    columns = (
        Column("cell", prose=True),
        *(gpu_columns if with_gpus else ()),
        Column("CPUs busy", True),
        Column("host memory", True),
        Column("sent", True),
        Column("received", True),
    )
    rows = []
    for cell, telemetry in read:
        figures = cell.figures
        assert figures is not None  # noqa: S101 - only measured cells come here
        gpus = _gpu_values(telemetry.gpus) if with_gpus else ()
        energy = (_value(figures.joules_per_step, format_rate), _value(figures.samples_per_joule, format_rate))
        rows.append(
            (
                Value(cell_words(cell.cell)),
                *gpus,
                *(energy if with_gpus else ()),
                _value(telemetry.cpu_busy, lambda share: format_percent(share, 0)),
                _value(telemetry.memory_used_peak_bytes, format_bytes),
                _value(telemetry.sent_bytes_per_second, format_byte_rate),
                _value(telemetry.received_bytes_per_second, format_byte_rate),
            )
        )
    note = (
        "Read about once a second by a process of its own over the measured steps: means, but for memory and "
        "temperature, which are peaks; energy by the GPUs' own counters where they have one. Network counts all "
        "interfaces, the loopback too."
    )
    problems = dict.fromkeys(telemetry.problem for _, telemetry in read if telemetry.problem)
    missing = tuple(f"Nothing of GPUs: {problem}." for problem in problems)
    if not with_gpus and not missing:
        missing = ("No GPU was used, so there are no power, energy and clocks.",)
    blocks: tuple[Block, ...] = (Paragraph(note), Table("Telemetry", columns, tuple(rows)))
    return Section("Telemetry", "telemetry", (*blocks, *([Bullets(missing)] if missing else [])))


def _gpu_values(gpus: Sequence[GpuUse]) -> tuple[Value, ...]:
    def mean(pick: Callable[[GpuUse], float | None]) -> float | None:
        known = [value for gpu in gpus if (value := pick(gpu)) is not None]
        return sum(known) / len(known) if known else None

    def most(pick: Callable[[GpuUse], float | None]) -> float | None:
        return max((value for gpu in gpus if (value := pick(gpu)) is not None), default=None)

    return (
        _value(mean(lambda gpu: gpu.busy), lambda share: format_percent(share, 0)),
        _value(most(lambda gpu: gpu.memory_used_peak_bytes), format_bytes),
        _value(mean(lambda gpu: gpu.power_watts), lambda watts: f"{watts:.0f} W"),
        _value(mean(lambda gpu: gpu.sm_clock_hertz), lambda hertz: f"{hertz / 1e6:.0f} MHz"),
        _value(most(lambda gpu: gpu.temperature_peak_celsius), lambda degrees: f"{degrees:.0f} °C"),
        _value(most(lambda gpu: gpu.throttled_share), lambda share: format_percent(share, 0)),
    )


def _value(number: float | None, words: Callable[[float], str]) -> Value:
    return _DASH if number is None else Value(words(number), number)
