"""Processes of exports in files, as ranks are (``features/trace/readers/stored.py``), with what their export tells
of NCCL: communicators are joined over all exports once all are read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from torchscale.features.trace.readers.nsys.communicators import ExportedRank, NcclSpan
from torchscale.features.trace.readers.nsys.nccl import NcclCall
from torchscale.features.trace.readers.stored import Shelf, load_rank, store_rank

_NO_CALL = -1


def store_process(process: ExportedRank, directory: Path, number: int) -> None:
    """Write a process to files.

    Raises:
        OutputError: there is no space for them.
    """
    store_rank(process.trace, directory, number)
    names: dict[str, int] = {}
    calls: dict[NcclCall, int] = {}
    rows = [
        (
            span.start,
            span.end,
            names.setdefault(span.name, len(names)),
            span.stream,
            span.link,
            span.step,
            _NO_CALL if span.call is None else calls.setdefault(span.call, len(calls)),
            int(span.is_launched),
        )
        for span in process.communication
    ]
    np.save(directory / f"{number}.nccl.npy", np.array(rows, dtype=np.int64).reshape(-1, 8))
    # Numbers of communicators need not fit 64 bits.
    described = {
        "names": list(names),
        "calls": [astuple(call) for call in calls],
        "lacks_payloads": process.lacks_payloads,
    }
    (directory / f"{number}.nccl.json").write_text(json.dumps(described))


def load_process(directory: Path, number: int, shelf: Shelf, names: dict[str, str]) -> ExportedRank:
    """A process whose spans stay in files for as long as the directory is there; arguments as of
    :func:`~torchscale.features.trace.readers.stored.load_rank`."""
    described = json.loads((directory / f"{number}.nccl.json").read_text())
    calls: list[NcclCall | None] = [*(NcclCall(*call) for call in described["calls"]), None]
    rows = np.load(directory / f"{number}.nccl.npy", allow_pickle=False).tolist()
    return ExportedRank(
        load_rank(directory, number, shelf, names),
        tuple(_spans(rows, described["names"], calls)),
        described["lacks_payloads"],
    )


def _spans(rows: Iterable[list[int]], names: list[str], calls: list[Any]) -> Iterable[NcclSpan]:
    for start, end, name, stream, link, step, call, is_launched in rows:
        yield NcclSpan(start, end, names[name], stream, link, step, calls[call], bool(is_launched))
