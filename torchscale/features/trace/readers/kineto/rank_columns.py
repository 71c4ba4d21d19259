"""Spans and kept events of a file become the columns of its ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.readers.columns import (
    CollectiveRow,
    StepRow,
    make_collectives,
    make_steps,
)
from torchscale.features.trace.readers.kineto.categories import HOST
from torchscale.features.trace.readers.kineto.collectives import gloo_rows, interval, kernel_rows
from torchscale.features.trace.readers.kineto.kept import CPU, CUDA, KeptEvents
from torchscale.features.trace.readers.kineto.launched import launched_by_operators, launched_rows
from torchscale.features.trace.readers.kineto.processes import main_devices
from torchscale.features.trace.span import CollectiveSpans, SpanKind, Spans, Steps


@dataclass(frozen=True)
class EventColumns:
    """All events of a rank; times in nanoseconds since the epoch.

    Attributes:
        label: What the file calls the rank; empty where it holds one.
        device: Its device, where the file holds several of one process; else ``None``.
        on_device: Whether anything ran on a device.
        pid: The process that annotated its steps; 0 without steps.
        peak_bytes: Most that was allocated at once on the device (without one: the host);
            ``None`` where allocations were not recorded.
    """

    label: str
    device: int | None
    spans: Spans
    names: tuple[str, ...]
    collectives: CollectiveSpans
    steps: Steps
    on_device: bool
    pid: int
    peak_bytes: int | None


class SpanPiece(NamedTuple):
    """Spans of a piece of the file, with what is not kept of each: the "External id" that
    operators and kernels share, the device, and the place of the process."""

    spans: Spans
    external: NDArray[np.int64]
    device: NDArray[np.int64]
    process: NDArray[np.int64]

    def only(self, chosen: NDArray[np.bool_]) -> SpanPiece:
        """The spans that are chosen."""
        rest = (column[chosen] for column in self[1:])
        return SpanPiece(self.spans.only(chosen), *rest)


class Common(NamedTuple):
    """What all ranks of a file share.

    Attributes:
        names: What ``spans.name`` points into.
        communicating: Those that are operators of communication, by their places.
        base: What makes times nanoseconds since the epoch.
    """

    names: tuple[str, ...]
    communicating: set[int]
    base: int


def columns_by_device(
    process: KeptEvents, part: SpanPiece, common: Common
) -> Iterator[EventColumns]:
    """A rank's columns; a process that worked on several devices becomes one rank a device."""
    devices = main_devices(part.spans, part.device, process.kernels)
    if len(devices) < 2:
        yield columns_of(process, part, common)
        return
    kernels = process.kernels
    for device in devices:
        here = (part.device == device) | (part.device == HOST)
        process.kernels = [kernel for kernel in kernels if kernel.device == device]
        yield columns_of(process, part.only(here), common, device)


def columns_of(
    process: KeptEvents, part: SpanPiece, common: Common, device: int | None = None
) -> EventColumns:
    """The columns of a rank, or of one of its devices."""
    names, _, base = common
    rows: list[CollectiveRow] = []
    # gloo runs on the host, also where it carries what a device computed.
    by_gloo = bool(process.completions) and not process.kernels
    is_on_host = by_gloo or not process.on_device
    if is_on_host:
        rows += gloo_rows(process.calls, process.completions, base)
    else:
        rows += kernel_rows(process.kernels, base)
        operators = _operators(process, part, common)
        launched = launched_by_operators(part.spans, part.external, names, operators)
        if launched.any():
            theirs = part.only(launched)
            rows += launched_rows(theirs.spans, theirs.external, names, operators)
            part = part.only(~launched)
    peak = process.peaks[CUDA if process.on_device else CPU]
    if device is not None:
        peak = -1
    return EventColumns(
        label=process.label,
        device=device,
        spans=part.spans,
        names=names,
        collectives=make_collectives(rows, peers_within_group=is_on_host),
        steps=make_steps(
            StepRow(*interval(step.ts, step.dur, base), step.number) for step in process.steps
        ),
        on_device=process.on_device,
        pid=process.pid,
        peak_bytes=None if peak < 0 else peak,
    )


def _operators(process: KeptEvents, part: SpanPiece, common: Common) -> dict[int, str]:
    """Calls of operators that communicate, by their "External id"."""
    operators = {call.args.external: call.op for call in process.calls}
    if common.communicating:
        chosen = part.spans.of(SpanKind.OPERATOR)
        chosen &= np.isin(part.spans.name, list(common.communicating))
        for external, name in zip(
            part.external[chosen].tolist(), part.spans.name[chosen].tolist(), strict=True
        ):
            operators[external] = common.names[name]
    operators.pop(0, None)
    return operators
