"""Ranks written to files and loaded again."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from torchscale.errors import OutputError
from torchscale.features.trace.readers.columns import (
    CollectiveRow,
    StepRow,
    make_collectives,
    make_steps,
    no_spans,
)
from torchscale.features.trace.readers.soundness import MAX_NS
from torchscale.features.trace.readers.stored import Shelf, StoredSpans, load_rank, store_rank
from torchscale.features.trace.span import CpuUse, RankTrace, Spans


def spans(start: list[int]) -> Spans:
    """Spans that start then."""
    count = len(start)
    starts = np.array(start, dtype=np.int64)
    return Spans(
        start=starts,
        end=starts + 70_000,
        kind=np.full(count, 3, dtype=np.int8),
        name=np.arange(count, dtype=np.int32) % 2,
        lane=np.array([-5, 1 << 40, 7][:count], dtype=np.int64),
        link=np.zeros(count, dtype=np.int64),
        detail=np.zeros(count, dtype=np.int8),
        size=np.full(count, -1, dtype=np.int64),
    )


def rank(**changes: Any) -> RankTrace:
    """A rank with a bit of everything."""
    trace = RankTrace(
        rank=3,
        host="n1",
        pid=44,
        on_device=True,
        backend="nccl",
        world_size=8,
        source="rank3.json",
        names=("gemm", "copy ü"),
        spans=spans([1_700_000_000_000_000_000, 1_700_000_000_000_000_900, 0]),
        collectives=make_collectives([CollectiveRow(5, 9, "all_reduce", "g", 64, 1, 7)]),
        steps=make_steps([StepRow(1, 4, 0), StepRow(4, 9, 1)]),
        cpu_use=CpuUse(4, frozenset({0, 3})),
    )
    return replace(trace, **changes)


def equal(one: object, other: object, table: type) -> bool:
    """Whether two tables have equal columns, of equal types."""
    pairs = [(getattr(one, field.name), getattr(other, field.name)) for field in fields(table)]
    return all(np.array_equal(a, b) for a, b in pairs) and all(
        np.asarray(a).dtype == np.asarray(b).dtype for a, b in pairs
    )


@pytest.mark.parametrize(
    "trace",
    [
        rank(),
        rank(spans=no_spans(), collectives=make_collectives(()), steps=make_steps(())),
        rank(host=None, world_size=None, backend=None, cpu_use=None),
        rank(spans=spans([-MAX_NS, MAX_NS])),
    ],
)
def test_a_rank_comes_back_as_it_was(trace: RankTrace, tmp_path: Path) -> None:
    store_rank(trace, tmp_path, 12)
    back = load_rank(tmp_path, 12, Shelf(), {})
    assert isinstance(back.spans, StoredSpans)
    assert len(back.spans) == len(trace.spans)
    for table in ("spans", "collectives", "steps"):
        assert equal(getattr(back, table), getattr(trace, table), type(getattr(trace, table)))
    plain: dict[str, Any] = {"spans": None, "collectives": None, "steps": None}
    assert replace(back, **plain) == replace(trace, **plain)
    chosen = np.zeros(len(trace.spans), dtype=bool)
    chosen[:1] = True
    assert equal(back.spans.only(chosen), trace.spans.only(chosen), Spans)


def test_only_one_rank_is_in_memory(tmp_path: Path) -> None:
    shelf, names = Shelf(), dict[str, str]()
    for number in range(2):
        store_rank(rank(rank=number), tmp_path, number)
    first, second = (load_rank(tmp_path, number, shelf, names) for number in range(2))
    start = first.spans.start
    assert first.spans.start is start
    assert second.spans.kind.tolist() == [3, 3, 3]
    assert first.spans.start is not start
    assert first.names[0] is second.names[0]


def test_a_file_takes_few_bytes(tmp_path: Path) -> None:
    count = 10_000
    numbers = np.arange(count, dtype=np.int64)
    many = Spans(
        start=10**18 + 1000 * numbers,
        end=10**18 + 1000 * numbers + 50,
        kind=np.zeros(count, dtype=np.int8),
        name=np.zeros(count, dtype=np.int32),
        lane=np.full(count, 4711, dtype=np.int64),
        link=numbers,
        detail=np.zeros(count, dtype=np.int8),
        size=np.zeros(count, dtype=np.int64),
    )
    store_rank(rank(spans=many), tmp_path, 0)
    assert (tmp_path / "0.columns").stat().st_size < 16 * count


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="No such file"):
        store_rank(rank(), tmp_path / "gone", 0)
