"""The JSON of ``measure``, which a report contains as well.

Sizes are bytes, times seconds, rates per second.
"""

from __future__ import annotations

from pydantic.dataclasses import dataclass

from torchscale.config.choices import ElementType, MatmulType, Operation
from torchscale.schema.cells.collectives import CollectivesCell, PairSample
from torchscale.schema.cells.hardware import CopyKind, DiskSample, HardwareCell
from torchscale.schema.cells.memory import MemoryCell, MemoryRank
from torchscale.schema.exports.base import (
    PUBLISHED,
    RESULTS_SCHEMA_VERSION,
    PublishedDocument,
    Unpublished,
)
from torchscale.schema.exports.checkpoint import CheckpointExport
from torchscale.schema.exports.machine_cell import MachineCellExport


@dataclass(frozen=True, config=PUBLISHED)
class CollectivePoint:
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
    calls: int
    """Calls in the timed loop of a launch; as many again were timed one by one."""
    link_share: float | None = None
    """busbw over the rated bandwidth of the link in one direction; null where that is not known, and
    of a barrier, which carries nothing."""
    flags: tuple[str, ...] = ()
    """``contended`` or ``noisy``: its time is not the link's alone."""
    half_width: Unpublished[float | None] = None
    """Half width of the 95 % t-interval of the mean of the calls timed one by one, as a share of
    it; null with fewer than two."""


@dataclass(frozen=True, config=PUBLISHED)
class LatencyFit:
    """Time = latency + bytes ÷ bandwidth, fitted over all sizes."""

    latency_seconds: float
    bytes_per_second: float
    residual: float
    """Root mean square of the relative deviations."""


@dataclass(frozen=True, config=PUBLISHED)
class Curve:
    """One collective in one element type over all sizes, smallest first."""

    operation: Operation
    dtype: ElementType
    points: tuple[CollectivePoint, ...]
    fit: LatencyFit | None

    @property
    def peak(self) -> CollectivePoint:
        """The size where busbw is highest, of the sizes without a flag; of all where every one has
        one."""
        clean = [point for point in self.points if not point.flags]
        return max(clean or self.points, key=lambda point: point.busbw)


@dataclass(frozen=True, config=PUBLISHED)
class CollectiveFigures:
    """What a sweep of collectives measured."""

    backend: str
    curves: tuple[Curve, ...]
    pairs: tuple[PairSample, ...]
    """Messages between every two ranks, mean over launches."""
    unsupported: tuple[tuple[str, str], ...]
    """Operation and dtype that the backend does not have, with its message."""


@dataclass(frozen=True, config=PUBLISHED)
class LinkCeiling:
    """What the link between devices allows."""

    bytes_per_second: float
    """Bandwidth in one direction."""
    link: str
    expected_share: float
    """Share of it that should be reached."""
    doubt: Unpublished[str] = ""
    """Why a lower share proves nothing; empty where it does."""


@dataclass(frozen=True, config=PUBLISHED)
class LinkCause:
    """A possible cause of a slow link, and the command that checks it."""

    text: str
    check: str


@dataclass(frozen=True, config=PUBLISHED)
class LinkVerdict:
    """The measured bus bandwidth against the link."""

    text: str
    share: float | None = None
    """Share of the link's bandwidth; null where the two cannot be compared, for the reason in
    ``text``."""
    fits: bool | None = None
    causes: tuple[LinkCause, ...] = ()
    ceiling: LinkCeiling | None = None


class CollectivesExport(MachineCellExport):
    """A sweep of collectives."""

    cell: CollectivesCell
    figures: CollectiveFigures | None
    """Null unless the state is ``ok``."""
    verdict: LinkVerdict | None
    transports: tuple[str, ...]
    """Transports that NCCL logged."""


@dataclass(frozen=True, config=PUBLISHED)
class MatmulRates:
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


@dataclass(frozen=True, config=PUBLISHED)
class CopyRate:
    """A copy; mean over devices. Within a device both the bytes read and the bytes written
    count."""

    kind: CopyKind
    bytes_per_second: float
    slowest_device: float
    """Lowest device's rate over the mean, minus 1."""
    pinned: bool | None = None
    """Whether the host memory was pinned; null where no host memory takes part."""
    source: int | None = None
    peer: int | None = None
    """Indices of two devices, where it is a copy between devices."""


@dataclass(frozen=True, config=PUBLISHED)
class HardwareFigures:
    """The peak rates of a device where all of the cell's devices work at once."""

    matmuls: tuple[MatmulRates, ...]
    copies: tuple[CopyRate, ...]
    disk: DiskSample | None
    unsupported: tuple[tuple[str, str], ...]
    """Dtypes that the device cannot multiply, with the reason."""

    def peak(self, dtype: str) -> float | None:
        """FLOP/s of products in ``dtype``; ``None`` where it was not measured."""
        return next((rates.peak for rates in self.matmuls if rates.dtype == dtype), None)

    @property
    def memory_bytes_per_second(self) -> float | None:
        """Bandwidth of copies within the device, read plus written; ``None`` where none was
        measured."""
        return next((rate.bytes_per_second for rate in self.copies if rate.kind == "device"), None)


class HardwareExport(MachineCellExport):
    """Peak rates of devices."""

    cell: HardwareCell
    figures: HardwareFigures | None
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


DOCUMENT = PublishedDocument(
    tuple[AnyMachineExport, ...],
    RESULTS_SCHEMA_VERSION,
    "torchscale machine measurements",
    "Collectives, peak rates or memory, one entry a cell: `torchscale measure collectives "
    "--json`, `measure hardware --json`, `measure memory --json`.",
)
