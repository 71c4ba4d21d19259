"""Small helpers that both readers build their columns with."""

from __future__ import annotations

import numpy as np

from torchscale.schema.span import Collectives, Spans, Steps

_NCCL_OPS = (
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("reducescatter", "reduce_scatter"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("sendrecv", "send_recv"),
    ("gather", "gather"),
    ("scatter", "scatter"),
    ("reduce", "reduce"),
    ("send", "send_recv"),
    ("recv", "send_recv"),
    ("barrier", "barrier"),
)


def op_of(name: str) -> str:
    """The collective that a kernel, a call or an annotation stands for: ``ncclDevKernel_AllReduce_…`` → ``all_reduce``.

    A send here is a receive there: both are ``send_recv``. What is not known keeps its own name.
    """
    flat = name.lower().replace("_", "")
    for sign, op in _NCCL_OPS:
        if sign in flat:
            return op
    return name.partition("(")[0][:80]


def is_nccl(name: str) -> bool:
    """Whether a kernel is one of NCCL's."""
    return name[:4].lower() == "nccl"


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
    return Spans(empty, empty, empty.astype(np.int8), empty.astype(np.int32), empty, empty, empty.astype(np.int8))


def join_spans(parts: list[Spans]) -> Spans:
    """One table of several."""
    parts = parts or [no_spans()]
    return Spans(
        *(
            np.concatenate([getattr(part, column) for part in parts])
            for column in ("start", "end", "kind", "name", "lane", "link", "detail")
        )
    )


def make_collectives(rows: list[tuple[int, int, str, str, int, int, int]]) -> Collectives:
    """From rows of (start, end, op, group, payload bytes, sequence, lane), in any order."""
    ops, groups = NameTable(), NameTable()
    rows = sorted(rows)
    numbers = [
        (start, end, ops.number(op), groups.number(group), size, sequence, lane)
        for start, end, op, group, size, sequence, lane in rows
    ]
    table = np.array(numbers, dtype=np.int64).reshape(-1, 7)
    return Collectives(
        start=table[:, 0],
        end=table[:, 1],
        op=table[:, 2].astype(np.int32),
        group=table[:, 3].astype(np.int32),
        payload_bytes=table[:, 4],
        sequence=table[:, 5],
        lane=table[:, 6],
        ops=ops.names,
        groups=groups.names,
    )


def make_steps(rows: list[tuple[int, int, int]]) -> Steps:
    """From rows of (start, end, number), in any order."""
    table = np.array(sorted(rows), dtype=np.int64).reshape(-1, 3)
    return Steps(table[:, 0], table[:, 1], table[:, 2])
