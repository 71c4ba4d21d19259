"""Bandwidths of collectives from their times, as nccl-tests defines them, and latency and bandwidth
of the link."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from torchscale.analysis.machine.bus_factor import bus_factor
from torchscale.analysis.stats.estimate import relative_half_width
from torchscale.analysis.training.flags import OTHER_PROCESSES_LIMIT, Flag, foreign_share
from torchscale.config.choices import ElementType, Operation
from torchscale.schema.cells.collectives import (
    CollectiveSample,
    CollectivesCell,
    CollectivesRank,
    CollectivesResult,
    PairSample,
)
from torchscale.schema.exports.machine import CollectiveFigures, CollectivePoint, Curve, LatencyFit

_MIN_FIT_SIZES = 4
"""A line has two parameters; with two points more its residual says something."""
_READABLE_SECONDS = 0.25
"""Shortest length of a stretch over which the load of the host was read in ticks of 10 ms: its
error is then 4 % of the cores, less than half the share that counts as contention."""
_NOISY_HALF_WIDTH = 1 / 3
"""Beyond it, the intervals of two sizes whose times differ by a factor of two overlap."""
_MIN_CALLS = 5
"""Fewer calls have an interval wider than that whatever they measure: t is 2.8 with four degrees of
freedom, 4.3 with two."""
_LOOP_OVER_CALL = 2.0
"""A mean call of the timed loop over the median call timed by itself: the loop was interrupted. It
is otherwise the shorter one, since it waits for nobody to read the clock."""
_CLEARLY = 1.5
"""NCCL and gloo change algorithm or protocol at some sizes, which may cost or gain some ten per
cent."""


def collective_figures(
    cell: CollectivesCell, launches: Sequence[CollectivesResult]
) -> CollectiveFigures:
    """Figures of launches that are all ``ok``."""
    ranks = [rank for result in launches for rank in result.ranks]
    kinds = dict.fromkeys((sample.operation, sample.dtype) for sample in ranks[0].samples)
    return CollectiveFigures(
        backend=ranks[0].backend or "none",
        curves=tuple(
            _curve(operation, dtype, cell.world_size, launches) for operation, dtype in kinds
        ),
        pairs=_pairs([pair for rank in ranks for pair in rank.pairs]),
        unsupported=tuple(ranks[0].unsupported.items()),
    )


def with_link_shares(figures: CollectiveFigures, link: float) -> CollectiveFigures:
    """The figures, each size with its share of the ``link``'s bytes per second."""

    def shared(point: CollectivePoint) -> CollectivePoint:
        return replace(point, link_share=point.busbw / link) if point.busbw else point

    return replace(
        figures,
        curves=tuple(
            replace(curve, points=tuple(map(shared, curve.points))) for curve in figures.curves
        ),
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


_OfRank = tuple[str, CollectiveSample]
"""A rank's host, and what it measured."""


def _curve(
    operation: Operation, dtype: ElementType, ranks: int, launches: Sequence[CollectivesResult]
) -> Curve:
    by_size: dict[int, list[list[_OfRank]]] = {}
    for result in launches:
        here: dict[int, list[_OfRank]] = {}
        for rank in result.ranks:
            for sample in rank.samples:
                if (sample.operation, sample.dtype) == (operation, dtype):
                    here.setdefault(sample.payload_bytes, []).append((rank.hostname, sample))
        for size, samples in here.items():
            by_size.setdefault(size, []).append(samples)
    factor = _carried_share(operation, ranks)
    points = with_order_checked([_point(by_size[size], factor) for size in sorted(by_size)])
    return Curve(
        operation,
        dtype,
        points,
        _fit(points),
    )


def _fit(points: Sequence[CollectivePoint]) -> LatencyFit | None:
    """Latency and bandwidth over the sizes without a flag, where these are enough for a line; else
    over all sizes."""
    clean = [point for point in points if not point.flags]
    fitted = clean if len(clean) >= _MIN_FIT_SIZES else points
    return fit_latency(
        [point.payload_bytes for point in fitted], [point.seconds for point in fitted]
    )


def with_order_checked(points: Sequence[CollectivePoint]) -> tuple[CollectivePoint, ...]:
    """Points from the smallest message to the largest, with ``noisy`` where a larger one took
    clearly less: its whole interval, :data:`_CLEARLY` times over. A change of algorithm or protocol
    may make a larger message faster, but by less."""
    checked: list[CollectivePoint] = []
    fastest = math.inf
    for point in reversed(points):
        half, flags = point.half_width or 0.0, set(point.flags)
        if point.seconds * (1 - half) > _CLEARLY * fastest:
            flags.add(Flag.NOISY)
        if not flags:
            fastest = min(fastest, point.seconds * (1 + half))
        checked.append(replace(point, flags=tuple(sorted(flags))))
    return tuple(reversed(checked))


def sweep_flags(curves: Sequence[Curve]) -> tuple[Flag, ...]:
    """Flags of the bandwidths that a sweep is known by: only where an operation has no size without
    one."""
    return tuple(sorted({Flag(flag) for curve in curves for flag in curve.peak.flags}))


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


def _point(measured: Sequence[Sequence[_OfRank]], factor: float) -> CollectivePoint:
    """Figures of one size, from the samples of every rank in every launch."""
    launches = [[sample for _, sample in ranks] for ranks in measured]
    first = launches[0][0]
    everyone = [sample for samples in launches for sample in samples]
    seconds = statistics.fmean(sample.mean_seconds for sample in everyone)
    slowest = [
        max(calls)
        for samples in launches
        for calls in zip(*(sample.call_seconds for sample in samples), strict=True)
    ]
    p50, p95, p99 = (float(quantile) for quantile in np.quantile(slowest, (0.5, 0.95, 0.99)))
    checked = [sample.wrong_elements for sample in everyone if sample.wrong_elements is not None]
    half_width = relative_half_width(slowest)
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
            max(sample.mean_seconds for sample in samples)
            / min(sample.mean_seconds for sample in samples)
            - 1
            for samples in launches
        ),
        wrong_elements=sum(checked) if checked else None,
        calls=len(first.call_seconds),
        half_width=half_width,
        flags=tuple(
            sorted({*_contended(measured), *_noisy(seconds, p50, half_width, len(slowest))})
        ),
    )


def _contended(launches: Sequence[Sequence[_OfRank]]) -> set[Flag]:
    """The flag ``contended`` if other processes used the cores in any launch, in the stretch of
    time in which the size was measured."""
    for ranks in launches:
        loads = [(host, sample.host_load) for host, sample in ranks]
        if any(load is None or load.wall_seconds < _READABLE_SECONDS for _, load in loads):
            continue
        share = foreign_share(loads)
        if share is not None and share > OTHER_PROCESSES_LIMIT:
            return {Flag.CONTENDED}
    return set()


def _noisy(loop: float, median: float, half_width: float | None, calls: int) -> set[Flag]:
    """The flag ``noisy`` if the calls that were timed one by one scatter, or do not agree with the
    timed loop."""
    scatters = calls >= _MIN_CALLS and half_width is not None and half_width > _NOISY_HALF_WIDTH
    return {Flag.NOISY} if scatters or loop > _LOOP_OVER_CALL * median else set()


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
