"""Ceilings of a device, from timed products and copies."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from torchscale.config.choices import MatmulType
from torchscale.schema.cells.hardware import (
    CopyKind,
    CopySample,
    HardwareRank,
    HardwareResult,
    MatmulSample,
)
from torchscale.schema.exports.machine import CopyRate, HardwareFigures, MatmulRates


def hardware_figures(launches: Sequence[HardwareResult]) -> HardwareFigures:
    """Figures of launches that are all ``ok``."""
    ranks = [rank for result in launches for rank in result.ranks]
    dtypes = dict.fromkeys(sample.dtype for rank in ranks for sample in rank.matmuls)
    disks = [rank.disk for rank in ranks if rank.disk is not None]
    return HardwareFigures(
        matmuls=tuple(_rates(dtype, ranks) for dtype in dtypes),
        copies=_copies(ranks),
        disk=disks[0] if disks else None,
        unsupported=tuple(ranks[0].unsupported.items()),
    )


def _rates(dtype: MatmulType, ranks: Sequence[HardwareRank]) -> MatmulRates:
    shapes: dict[tuple[int, int, int], list[MatmulSample]] = {}
    for sample in (matmul for rank in ranks for matmul in rank.matmuls if matmul.dtype == dtype):
        shapes.setdefault((sample.m, sample.n, sample.k), []).append(sample)
    rates = {
        shape: [_operations(shape) / statistics.median(sample.warm_seconds) for sample in samples]
        for shape, samples in shapes.items()
    }
    means = {shape: statistics.fmean(values) for shape, values in rates.items()}
    best = max(means, key=lambda shape: means[shape])
    cold = [
        statistics.median(sample.cold_seconds) for sample in shapes[best] if sample.cold_seconds
    ]
    return MatmulRates(
        dtype=dtype,
        peak=means[best],
        peak_shape=best,
        cold=statistics.fmean(_operations(best) / seconds for seconds in cold) if cold else None,
        typical=statistics.median(means.values()),
        slowest_device=min(rates[best]) / means[best] - 1,
        shapes=tuple(sorted(means.items(), key=lambda item: _operations(item[0]))),
    )


def _operations(shape: tuple[int, int, int]) -> float:
    """A multiply-add is two."""
    return 2.0 * math.prod(shape)


def _copies(ranks: Sequence[HardwareRank]) -> tuple[CopyRate, ...]:
    def key(
        rank: HardwareRank, sample: CopySample
    ) -> tuple[CopyKind, bool | None, int | None, int | None]:
        peer = sample.peer
        return sample.kind, sample.pinned, None if peer is None else rank.device.index, peer

    rates_of: dict[tuple[CopyKind, bool | None, int | None, int | None], list[float]] = {}
    for rank in ranks:
        for sample in rank.copies:
            passes = 2 if sample.kind == "device" else 1
            rate = passes * sample.payload_bytes / statistics.median(sample.seconds)
            rates_of.setdefault(key(rank, sample), []).append(rate)
    return tuple(
        CopyRate(kind, mean := statistics.fmean(rates), min(rates) / mean - 1, pinned, source, peer)
        for (kind, pinned, source, peer), rates in rates_of.items()
    )
