"""What a recording says of copies by the device: by direction how much, how fast, and what of it
nothing hides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.signals import CopyRoute, CopyUse
from torchscale.analysis.stats.intervals import IntervalSet, union
from torchscale.features.trace.analysis.windows import NS, RankWindow
from torchscale.features.trace.span import SpanCopyKind, SpanKind
from torchscale.util.optional import sole

_ROUTES: dict[str, dict[SpanCopyKind, bool | None]] = {
    CopyRoute.HOST_TO_DEVICE: {
        SpanCopyKind.HOST_TO_DEVICE: True,
        SpanCopyKind.HOST_TO_DEVICE_PAGEABLE: False,
        SpanCopyKind.HOST_TO_DEVICE_UNKNOWN: None,
    },
    CopyRoute.DEVICE_TO_HOST: {
        SpanCopyKind.DEVICE_TO_HOST: True,
        SpanCopyKind.DEVICE_TO_HOST_PAGEABLE: False,
        SpanCopyKind.DEVICE_TO_HOST_UNKNOWN: None,
    },
    CopyRoute.WITHIN_DEVICE: {SpanCopyKind.WITHIN_DEVICE: None},
    CopyRoute.BETWEEN_DEVICES: {SpanCopyKind.BETWEEN_DEVICES: None},
    CopyRoute.OTHER: {SpanCopyKind.OTHER: None},
}
"""Kinds of copies by route, each with whether its host memory is pinned. Fills are no copies."""


def copy_uses(ranks: Sequence[RankWindow], units: int) -> tuple[CopyUse, ...]:
    """The copies of each route that there were, mean over ranks; the costliest first.

    Args:
        ranks: Ranks of devices.
        units: Steps that they took, 1 for a recording without.
    """
    uses = []
    for route, kinds in _ROUTES.items():
        chosen = [_chosen(rank, kinds) for rank in ranks]
        if any(mask.any() for mask in chosen):
            uses.append(_use(route, kinds, ranks, chosen, units))
    return tuple(sorted(uses, key=lambda use: -use.exposed_seconds))


def _chosen(rank: RankWindow, kinds: dict[SpanCopyKind, bool | None]) -> NDArray[np.bool_]:
    spans = rank.trace.spans
    inside = (spans.end > rank.start) & (spans.start < rank.end)
    return np.asarray(spans.of(SpanKind.COPY) & np.isin(spans.detail, list(kinds)) & inside)


def _use(
    route: str,
    kinds: dict[SpanCopyKind, bool | None],
    ranks: Sequence[RankWindow],
    chosen: Sequence[NDArray[np.bool_]],
    units: int,
) -> CopyUse:
    count = len(ranks) * units
    busy = hidden = exposed = summed = 0
    sizes: list[int] = []
    pinned: set[bool | None] = set()
    for rank, mask in zip(ranks, chosen, strict=True):
        spans = rank.trace.spans
        cover = IntervalSet(spans.start[mask], spans.end[mask]).clipped(rank.start, rank.end)
        busy += cover.length
        hidden += cover.length - cover.minus(rank.compute).length
        exposed += cover.minus(union([rank.compute, rank.communication])).length
        summed += int((spans.end - spans.start)[mask].sum())
        sizes += spans.size[mask].tolist()
        pinned |= {kinds[SpanCopyKind(detail)] for detail in np.unique(spans.detail[mask])}
    bytes_per_step = bytes_per_second = None
    overlap = 0.0
    known = min(sizes, default=-1) >= 0
    if known:
        bytes_per_step = sum(sizes) / count
    if known and summed:
        bytes_per_second = sum(sizes) / (summed * NS)
    if busy:
        overlap = hidden / busy
    return CopyUse(
        route=CopyRoute(route),
        bytes_per_step=bytes_per_step,
        bytes_per_second=bytes_per_second,
        busy_seconds=busy * NS / count,
        exposed_seconds=exposed * NS / count,
        overlap=overlap,
        is_pinned=sole(pinned),
    )
