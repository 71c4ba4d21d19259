"""Columns of an export as spans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.readers.nsys.nvtx import NvtxRange
from torchscale.features.trace.span import SpanCopyKind, SpanKind, Spans

_COPY_KINDS = {1: SpanCopyKind.HOST_TO_DEVICE_UNKNOWN, 2: SpanCopyKind.DEVICE_TO_HOST_UNKNOWN,
               8: SpanCopyKind.WITHIN_DEVICE, 10: SpanCopyKind.BETWEEN_DEVICES}  # fmt: skip
"""Copy kinds of CUPTI."""
_PAGEABLE = 0
"""A memory kind of CUPTI."""


def ranges_as_spans(
    ranges: Iterator[NvtxRange] | list[NvtxRange], base: int, kind: SpanKind, name: int
) -> Spans:
    rows = [(item.start, item.end, item.thread, 0) for item in ranges]
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return spans_of(table, base, kind, _filled(table, name))


def _filled(table: NDArray[np.int64], name: int) -> NDArray[np.int32]:
    return np.full(len(table), name, dtype=np.int32)


def renumber(identifiers: NDArray[np.int64], numbers: dict[int, int]) -> NDArray[np.int32]:
    ordered = np.array(sorted(numbers), dtype=np.int64)
    index = np.array([numbers[int(identifier)] for identifier in ordered], dtype=np.int32)
    if len(ordered):
        return index[np.searchsorted(ordered, identifiers)]
    return identifiers.astype(np.int32)


def copy_details(kinds: NDArray[np.int64]) -> NDArray[np.int8]:
    """What is known of the host memory that each copy reads or writes. ``kinds``: columns copyKind,
    srcKind, dstKind."""
    copy, source, target = kinds[:, 0], kinds[:, 1], kinds[:, 2]
    detail = np.full(len(kinds), SpanCopyKind.OTHER, dtype=np.int8)
    for number, kind in _COPY_KINDS.items():
        detail[copy == number] = kind
    detail[(copy == 1) & (source >= 0)] = SpanCopyKind.HOST_TO_DEVICE
    detail[(copy == 1) & (source == _PAGEABLE)] = SpanCopyKind.HOST_TO_DEVICE_PAGEABLE
    detail[(copy == 2) & (target >= 0)] = SpanCopyKind.DEVICE_TO_HOST
    detail[(copy == 2) & (target == _PAGEABLE)] = SpanCopyKind.DEVICE_TO_HOST_PAGEABLE
    return detail


def copy_spans(table: NDArray[np.int64], base: int, name: int, detail: NDArray[np.int8]) -> Spans:
    """Spans of copies. ``table``: columns start, end, lane, link, size."""
    return replace(
        spans_of(table, base, SpanKind.COPY, _filled(table, name)),
        detail=detail,
        size=table[:, 4].copy(),
    )


def spans_of(
    table: NDArray[np.int64], base: int, kind: SpanKind, names: NDArray[np.int32]
) -> Spans:
    """Spans of one kind. ``table``: columns start, end, lane, link."""
    count = len(table)
    return Spans(
        start=table[:, 0] + base,
        end=table[:, 1] + base,
        kind=np.full(count, kind, dtype=np.int8),
        name=names,
        lane=table[:, 2].copy(),
        link=table[:, 3].copy(),
        detail=np.zeros(count, dtype=np.int8),
        size=np.zeros(count, dtype=np.int64),
    )
