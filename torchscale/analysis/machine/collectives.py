"""From the times of collectives to bandwidths, as nccl-tests defines them, and to latency and bandwidth of the link."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchscale.analysis.machine.bus_factor import bus_factor
from torchscale.config.choices import ElementType, Operation
from torchscale.schema.cells.collectives import (
    CollectiveSample,
    CollectivesCell,
    CollectivesRank,
    CollectivesResult,
    PairSample,
)

_MIN_FIT_SIZES = 4
"""A line has two parameters; with two points more its residual says something."""


@dataclass(frozen=True)
class CollectivePoint:
    """One operation at one size.

    Attributes:
        payload_bytes, elements, in_place: As measured.
        seconds: Mean of a call, averaged over ranks and launches, as nccl-tests does.
        algbw, busbw: Bytes per second; 0 for a barrier, which carries nothing.
        p50, p95, p99: Of calls timed one by one, each call's slowest rank.
        rank_spread: Slowest rank's mean over the fastest's, minus 1.
        wrong_elements: Over all ranks; ``None`` where nothing was checked.
    """

    payload_bytes: int
    elements: int
    in_place: bool
    seconds: float
    algbw: float
    busbw: float
    p50: float
    p95: float
    p99: float
    rank_spread: float
    wrong_elements: int | None


@dataclass(frozen=True)
class LatencyFit:
    """t = latency + bytes ÷ bandwidth over all sizes, each weighted by its own time. ``residual`` is the root mean
    square of the relative deviations: large where one line does not describe the link."""

    latency_seconds: float
    bytes_per_second: float
    residual: float


@dataclass(frozen=True)
class Curve:
    """One operation in one dtype over all sizes, smallest first."""

    operation: Operation
    dtype: ElementType
    points: tuple[CollectivePoint, ...]
    fit: LatencyFit | None

    @property
    def peak(self) -> CollectivePoint:
        """Where busbw is highest."""
        return max(self.points, key=lambda point: point.busbw)


@dataclass(frozen=True)
class CollectiveFigures:
    """What a sweep measured.

    Attributes:
        backend: Over which the ranks exchanged.
        curves: By operation and dtype, in the order asked for.
        pairs: Messages between every two ranks; mean over launches.
        unsupported: What the backend does not have, and what it said.
    """

    backend: str
    curves: tuple[Curve, ...]
    pairs: tuple[PairSample, ...]
    unsupported: tuple[tuple[str, str], ...]


def collective_figures(cell: CollectivesCell, launches: Sequence[CollectivesResult]) -> CollectiveFigures:
    """Figures of launches that are all ``ok``."""
    ranks = [rank for result in launches for rank in result.ranks]
    kinds = dict.fromkeys((sample.operation, sample.dtype) for sample in ranks[0].samples)
    return CollectiveFigures(
        backend=ranks[0].backend or "none",
        curves=tuple(_curve(operation, dtype, cell.world_size, launches) for operation, dtype in kinds),
        pairs=_pairs([pair for rank in ranks for pair in rank.pairs]),
        unsupported=tuple(ranks[0].unsupported.items()),
    )


def fit_latency(sizes: Sequence[float], seconds: Sequence[float]) -> LatencyFit | None:
    """Weighted least squares: the sum of ((latency + bytes ÷ bandwidth − t) ÷ t)² is smallest.

    ``None`` for fewer than four sizes, or where time does not grow with size.
    """
    if len(sizes) < _MIN_FIT_SIZES:
        return None
    times = np.asarray(seconds, dtype=float)
    columns = np.stack([1 / times, np.asarray(sizes, dtype=float) / times], axis=1)
    target = np.ones(len(times))
    latency, per_byte = np.linalg.lstsq(columns, target, rcond=None)[0]
    if latency < 0:  # a link has none below zero: the line through the origin is the nearest
        latency, per_byte = 0.0, float(columns[:, 1] @ target / (columns[:, 1] @ columns[:, 1]))
    if per_byte <= 0:
        return None
    deviations = columns @ np.array([latency, per_byte]) - target
    return LatencyFit(float(latency), float(1 / per_byte), math.sqrt(float(np.mean(deviations**2))))


def _curve(operation: Operation, dtype: ElementType, ranks: int, launches: Sequence[CollectivesResult]) -> Curve:
    by_size: dict[int, list[list[CollectiveSample]]] = {}
    for result in launches:
        here: dict[int, list[CollectiveSample]] = {}
        for sample in (sample for rank in result.ranks for sample in rank.samples):
            if (sample.operation, sample.dtype) == (operation, dtype):
                here.setdefault(sample.payload_bytes, []).append(sample)
        for size, samples in here.items():
            by_size.setdefault(size, []).append(samples)
    factor = _carried_share(operation, ranks)
    points = tuple(_point(by_size[size], factor) for size in sorted(by_size))
    return Curve(
        operation,
        dtype,
        points,
        fit_latency([point.payload_bytes for point in points], [point.seconds for point in points]),
    )


def _carried_share(operation: Operation, ranks: int) -> float:
    """:func:`bus_factor`; 0 for a barrier, which carries nothing.

    Raises:
        ValueError: any other operation without a factor.
    """
    if operation == "barrier":
        return 0.0
    factor = bus_factor(operation, ranks)
    if factor is None:
        raise ValueError(f"no bus bandwidth is defined for {operation} over {ranks} ranks")
    return factor


def _point(launches: Sequence[Sequence[CollectiveSample]], factor: float) -> CollectivePoint:
    """Of every launch, the samples of every rank."""
    first = launches[0][0]
    everyone = [sample for samples in launches for sample in samples]
    seconds = statistics.fmean(sample.mean_seconds for sample in everyone)
    slowest = [
        max(calls) for samples in launches for calls in zip(*(sample.call_seconds for sample in samples), strict=True)
    ]
    p50, p95, p99 = (float(quantile) for quantile in np.quantile(slowest, (0.5, 0.95, 0.99)))
    checked = [sample.wrong_elements for sample in everyone if sample.wrong_elements is not None]
    algbw = first.payload_bytes / seconds
    return CollectivePoint(
        payload_bytes=first.payload_bytes,
        elements=first.elements,
        in_place=first.in_place,
        seconds=seconds,
        algbw=algbw,
        busbw=algbw * factor,
        p50=p50,
        p95=p95,
        p99=p99,
        rank_spread=statistics.fmean(
            max(sample.mean_seconds for sample in samples) / min(sample.mean_seconds for sample in samples) - 1
            for samples in launches
        ),
        wrong_elements=sum(checked) if checked else None,
    )


def _pairs(samples: Sequence[PairSample]) -> tuple[PairSample, ...]:
    """One per ordered pair: the mean over launches."""
    by_pair: dict[tuple[int, int], list[PairSample]] = {}
    for sample in samples:
        by_pair.setdefault((sample.source, sample.target), []).append(sample)
    return tuple(
        several[0].model_copy(
            update={
                "seconds": statistics.fmean(sample.seconds for sample in several),
                "latency_seconds": statistics.fmean(sample.latency_seconds for sample in several),
            }
        )
        for _, several in sorted(by_pair.items())
    )


def rank_zero(launches: Sequence[CollectivesResult]) -> CollectivesRank | None:
    """The record that carries what is known of the machine."""
    return next((rank for result in launches for rank in result.ranks if rank.rank == 0), None)
