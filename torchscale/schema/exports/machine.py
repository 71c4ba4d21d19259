"""The JSON of ``measure``, which a report contains as well.

Sizes are bytes, times seconds, rates per second.
"""

from __future__ import annotations

from torchscale.config.choices import ElementType, MatmulType, Operation
from torchscale.schema.cells.collectives import CollectivesCell, PairSample
from torchscale.schema.cells.hardware import CopyKind, DiskSample, HardwareCell
from torchscale.schema.cells.memory import MemoryCell, MemoryRank
from torchscale.schema.exports.base import Export
from torchscale.schema.exports.checkpoint import CheckpointExport
from torchscale.schema.exports.machine_cell import MachineCellExport


class CollectivePointExport(Export):
    """One collective at one size."""

    payload_bytes: int
    """Payload as nccl-tests counts it: the larger of input and output."""
    elements: int
    in_place: bool
    seconds: float
    """Mean of a call over ranks and launches."""
    algbw: float
    """Payload over time, bytes per second."""
    busbw: float
    """algbw times the bus factor of nccl-tests, bytes per second."""
    p50: float
    """Median of calls timed one by one, each call's slowest rank."""
    p95: float
    p99: float
    rank_spread: float
    """Slowest rank's mean over the fastest's, minus 1."""
    wrong_elements: int | None
    """Over all ranks; null where nothing was checked."""
    link_share: float | None
    """busbw over the rated bandwidth of the link in one direction; null where that is not known."""
    flags: tuple[str, ...]
    """``contended`` or ``noisy``: its time is not the link's alone."""


class LatencyFitExport(Export):
    """Time = latency + bytes ÷ bandwidth, fitted over all sizes."""

    latency_seconds: float
    bytes_per_second: float
    residual: float
    """Root mean square of the relative deviations."""


class CurveExport(Export):
    """One collective in one element type over all sizes, smallest first."""

    operation: Operation
    dtype: ElementType
    points: tuple[CollectivePointExport, ...]
    fit: LatencyFitExport | None


class CollectiveFiguresExport(Export):
    """What a sweep of collectives measured."""

    backend: str
    curves: tuple[CurveExport, ...]
    pairs: tuple[PairSample, ...]
    """Messages between every two ranks, mean over launches."""
    unsupported: tuple[tuple[str, str], ...]
    """Operation and dtype that the backend does not have, with its message."""


class LinkCeilingExport(Export):
    """What the link between devices allows."""

    bytes_per_second: float
    """Bandwidth in one direction."""
    link: str
    expected_share: float
    """Share of it that should be reached."""


class LinkCauseExport(Export):
    """A possible cause of a slow link, and the command that checks it."""

    text: str
    check: str


class LinkVerdictExport(Export):
    """The measured bus bandwidth against the link."""

    text: str
    share: float | None
    """Share of the link's bandwidth; null where the two cannot be compared, for the reason in
    ``text``."""
    fits: bool | None
    causes: tuple[LinkCauseExport, ...]
    ceiling: LinkCeilingExport | None


class CollectivesExport(MachineCellExport):
    """A sweep of collectives."""

    cell: CollectivesCell
    figures: CollectiveFiguresExport | None
    """Null unless the state is ``ok``."""
    verdict: LinkVerdictExport | None
    transports: tuple[str, ...]
    """Transports that NCCL logged."""


class MatmulRatesExport(Export):
    """Matrix products in one dtype; FLOP/s of a device, mean over devices."""

    dtype: MatmulType
    peak: float
    """Rate at the fastest shape."""
    peak_shape: tuple[int, int, int]
    """m, n, k."""
    cold: float | None
    """Rate at the same shape with the caches emptied before each product."""
    typical: float
    """Median over shapes."""
    slowest_device: float
    """Lowest device's peak over the mean, minus 1."""
    shapes: tuple[tuple[tuple[int, int, int], float], ...]
    """Every shape with its rate."""


class CopyRateExport(Export):
    """A copy; mean over devices. Within a device both the bytes read and the bytes written
    count."""

    kind: CopyKind
    bytes_per_second: float
    slowest_device: float
    """Lowest device's rate over the mean, minus 1."""
    pinned: bool | None
    """Whether the host memory was pinned; null where no host memory takes part."""
    source: int | None
    peer: int | None
    """Indices of two devices, where it is a copy between devices."""


class HardwareFiguresExport(Export):
    """The peak rates of a device where all of the cell's devices work at once."""

    matmuls: tuple[MatmulRatesExport, ...]
    copies: tuple[CopyRateExport, ...]
    disk: DiskSample | None
    unsupported: tuple[tuple[str, str], ...]
    """Dtypes that the device cannot multiply, with the reason."""


class HardwareExport(MachineCellExport):
    """Peak rates of devices."""

    cell: HardwareCell
    figures: HardwareFiguresExport | None
    """Null unless the state is ``ok``."""


class MemoryExport(MachineCellExport):
    """What a training step takes of a device's memory."""

    cell: MemoryCell
    ranks: tuple[MemoryRank, ...]
    """Ranks of the first launch; empty unless the state is ``ok``."""
    prediction_error: float | None
    """Predicted peak over the fullest rank's measured peak, minus 1."""


AnyMachineExport = HardwareExport | CollectivesExport | MemoryExport | CheckpointExport
"""A cell that measured the machine, of any kind."""
