"""Kernels that communicate although their names are not known: those that an operator which
communicates launched itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from torchscale.catalog.communication import function_of, is_general, is_known_op, op_of
from torchscale.features.trace.readers.columns import CollectiveRow, direction_of
from torchscale.features.trace.span import SpanKind, Spans


def launched_by_operators(
    spans: Spans,
    externals: NDArray[np.int64],
    names: Sequence[str],
    operators: Mapping[int, str],
) -> NDArray[np.bool_]:
    """Which spans are kernels that operators in ``operators`` launched.

    Args:
        spans: Spans of a rank.
        externals: "External id" of each: a kernel has that of the innermost operator around its
            launch; 0 for none.
        names: What ``spans.name`` points into.
        operators: "External id" of each call of an operator that communicates → its name.
    """
    kernels = spans.of(SpanKind.COMPUTE)
    if not operators:
        return np.zeros(len(spans), dtype=bool)
    ids = np.fromiter(operators, dtype=np.int64, count=len(operators))
    launched = kernels & np.isin(externals, ids)
    used = np.unique(spans.name[launched])
    general = [number for number in used.tolist() if is_general(names[number])]
    return launched & ~np.isin(spans.name, general)


def launched_rows(
    spans: Spans,
    externals: NDArray[np.int64],
    names: Sequence[str],
    operators: Mapping[int, str],
) -> Iterator[CollectiveRow]:
    """A collective for each kernel of ``spans``; arguments as of :func:`launched_by_operators`."""
    for place, external in enumerate(externals.tolist()):
        name = function_of(names[spans.name[place]])
        if not is_known_op(name):
            name = operators[external].rpartition("::")[2]
        yield CollectiveRow(
            int(spans.start[place]),
            int(spans.end[place]),
            op_of(name),
            "",
            -1,
            -1,
            int(spans.lane[place]),
            direction=direction_of(name),
            queue=int(spans.lane[place]),
            link=int(spans.link[place]),
        )
