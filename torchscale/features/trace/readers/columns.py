"""Columns of spans, collectives and steps, as both readers build them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from torchscale.features.trace.readers.soundness import MAX_NS
from torchscale.features.trace.span import CollectiveSpans, Spans, Steps


def direction_of(name: str) -> int:
    """1 where a call or an annotation is a send, -1 where it is a receive, 0 where it is neither or
    both."""
    flat = name.lower()
    return ("send" in flat and "recv" not in flat) - ("recv" in flat and "send" not in flat)


class NameTable:
    """Names in the order of their first use, each once."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, name: str) -> int:
        """The index of ``name``."""
        return self._numbers.setdefault(name, len(self._numbers))

    @property
    def names(self) -> tuple[str, ...]:
        """All names, by index."""
        return tuple(self._numbers)


def no_spans() -> Spans:
    """Columns of length 0."""
    empty = np.zeros(0, dtype=np.int64)
    small = empty.astype(np.int8)
    return Spans(empty, empty, small, empty.astype(np.int32), empty, empty, small, empty)


def join_spans(parts: list[Spans]) -> Spans:
    """One table of several."""
    parts = parts or [no_spans()]
    return Spans(
        start=np.concatenate([part.start for part in parts]),
        end=np.concatenate([part.end for part in parts]),
        kind=np.concatenate([part.kind for part in parts]),
        name=np.concatenate([part.name for part in parts]),
        lane=np.concatenate([part.lane for part in parts]),
        link=np.concatenate([part.link for part in parts]),
        detail=np.concatenate([part.detail for part in parts]),
        size=np.concatenate([part.size for part in parts]),
    )


class CollectiveRow(NamedTuple):
    """A collective of one rank, with the fields of
    :class:`~torchscale.features.trace.span.CollectiveSpans`; times in nanoseconds, -1 for a size,
    sequence number, partner or step that the trace lacks. Without ``began`` it ran from its
    start."""

    start: int
    end: int
    op: str
    group: str
    payload_bytes: int
    sequence: int
    lane: int
    peer: int = -1
    direction: int = 0
    step: int = -1
    began: int = -1
    queue: int = -1
    link: int = 0


class StepRow(NamedTuple):
    """A recorded step; times in nanoseconds."""

    start: int
    end: int
    number: int


def make_collectives(
    rows: Iterable[CollectiveRow], *, peers_within_group: bool = False
) -> CollectiveSpans:
    """Columns from rows in any order."""
    ops, groups = NameTable(), NameTable()
    numbers = [
        (row.start, row.end, ops.number(row.op), groups.number(row.group), *row[4:])
        for row in sorted(rows)
    ]
    table = np.array(numbers, dtype=np.int64).reshape(-1, 13)
    return CollectiveSpans(
        start=table[:, 0],
        end=table[:, 1],
        op=table[:, 2].astype(np.int32),
        group=table[:, 3].astype(np.int32),
        payload_bytes=table[:, 4],
        sequence=table[:, 5],
        lane=table[:, 6],
        step=table[:, 9],
        ops=ops.names,
        groups=groups.names,
        peer=table[:, 7].astype(np.int32),
        direction=table[:, 8].astype(np.int8),
        began=np.where(
            table[:, 10] >= 0, np.clip(table[:, 10], table[:, 0], table[:, 1]), table[:, 0]
        ),
        queue=table[:, 11],
        link=table[:, 12],
        peers_within_group=peers_within_group,
    )


def make_steps(rows: Iterable[StepRow]) -> Steps:
    """Columns from rows in any order. Of ranges around each other with one number the outer one
    counts. Where a loop was recorded again, and numbers with it, those of the later loop follow the
    highest of the first."""
    bounded = (row._replace(start=_bounded(row.start), end=_bounded(row.end)) for row in rows)
    table = np.array(
        _numbered(sorted(bounded, key=lambda row: (row.start, -row.end))), dtype=np.int64
    ).reshape(-1, 3)
    return Steps(table[:, 0], table[:, 1], table[:, 2])


def _bounded(time: int) -> int:
    """The time, limited to 64 bits; a time that was cut is refused later."""
    return max(-MAX_NS, min(time, MAX_NS))


def _numbered(rows: Sequence[StepRow]) -> list[StepRow]:
    """Rows by their start, each number once."""
    distinct: list[StepRow] = []
    last: dict[int, StepRow] = {}
    for row in rows:
        earlier = last.get(row.number)
        if earlier is None or row.start >= earlier.end:
            distinct.append(row)
            last[row.number] = row
    if len(last) == len(distinct):
        return distinct
    stride, loop, previous = max(last) + 1, 0, -1
    numbered = []
    for row in distinct:
        loop += row.number <= previous
        previous = row.number
        numbered.append(row._replace(number=row.number + loop * stride))
    return numbered
