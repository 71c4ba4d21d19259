"""What the events of a trace are, and the columns that they become."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchscale.schema.profiles.span import CollectiveSpans, SpanCopyKind, SpanKind, Spans, Steps
from torchscale.traces.columns import (
    NameTable,
    StepRow,
    direction_of,
    is_nccl_kernel,
    join_spans,
    make_collectives,
    make_steps,
    op_of,
)
from torchscale.traces.kineto.collectives import (
    GlooCall,
    GlooCompletion,
    NcclKernel,
    gloo_rows,
    interval,
    nanoseconds,
    nccl_rows,
)
from torchscale.traces.kineto.stream import NO_ARGS, Event
from torchscale.traces.soundness import MAX_NS, whole_number

_STEP = re.compile(r"ProfilerStep#(\d{1,15})$", re.ASCII)
_GLOO_PREFIX = "gloo:"
_LAUNCHES = (
    "cudaLaunch",
    "cuLaunch",
    "cudaMemcpyAsync",
    "cudaMemsetAsync",
    "cudaGraphLaunch",
    "hipLaunch",
)
_HOST_WAITS = {
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cudaMemcpy",
    "hipStreamSynchronize",
    "hipDeviceSynchronize",
    "hipEventSynchronize",
}
_READBACKS = {"aten::_local_scalar_dense"}
_COPIES = {
    "Memcpy HtoD (Pageable": SpanCopyKind.HOST_TO_DEVICE_PAGEABLE,
    "Memcpy HtoD": SpanCopyKind.HOST_TO_DEVICE,
    "Memcpy DtoH (Device -> Pageable": SpanCopyKind.DEVICE_TO_HOST_PAGEABLE,
    "Memcpy DtoH": SpanCopyKind.DEVICE_TO_HOST,
    "Memcpy DtoD": SpanCopyKind.WITHIN_DEVICE,
    "Memcpy PtoP": SpanCopyKind.BETWEEN_DEVICES,
    "Memset": SpanCopyKind.FILL,
}
"""The first prefix that fits decides: the longer one stands before the shorter."""
_MEMORY = "[memory]"
_CPU, _CUDA = 0, 1
"""Device types as torch numbers them."""
_MAX_KEPT = 1_000_000
"""Collectives and steps of a rank; each takes 900 bytes while it is read. 1,000 steps of 500
collectives have half."""
_MAX_NAMES = 1_000_000
_MAX_NAME_CHARACTERS = 1 << 28
"""Maximum number of characters of all different names. A recording has some hundreds to thousands,
the longest of ten thousand characters."""
_SHAPE = re.compile(r"\[(\d+(?:,\d+)*)\]")
_MAX_SHAPES = 80
"""Characters: lists of tensors may be long."""
_MAX_LANES = 100_000
"""Threads and streams that have names in place of numbers."""


class Kept(Enum):
    """Events that are few and carry more than a span does; they are kept one by one."""

    NCCL_KERNEL = auto()
    GLOO_CALL = auto()
    GLOO_COMPLETION = auto()
    MEMORY = auto()
    STEP = auto()


class SpanClass(NamedTuple):
    """What the spans of one category and name have in common: kind, index of the name, kind of
    copy."""

    kind: SpanKind
    name: int
    detail: SpanCopyKind


class _Step(NamedTuple):
    """An annotated step; times in microseconds."""

    ts: float
    dur: float
    number: int


EventClass = SpanClass | Kept | None
"""A class of spans, events that are kept one by one, or events of no use."""
_UNUSED = -1
"""Code of events of no use."""
_FIRST_KEPT = 1 << 30
"""Codes from here on are of events that are kept one by one, below of classes of spans."""


@dataclass(frozen=True)
class EventColumns:
    """All events of a trace; times in nanoseconds since the epoch.

    Attributes:
        on_device: Whether anything ran on a device.
        pid: The process that annotated its steps; 0 without steps.
        peak_bytes: Most that was allocated at once on the device (without one: the host);
            ``None`` where allocations were not recorded.
    """

    spans: Spans
    names: tuple[str, ...]
    collectives: CollectiveSpans
    steps: Steps
    on_device: bool
    pid: int
    peak_bytes: int | None


class ColumnBuilder:
    """Sorts events into columns, piece by piece.

    Every event gets the code of its class through one dictionary look-up of (phase, category,
    name): a trace has a million events and a few hundred such triples, so each is classified once.
    ``with_shapes``: operators are named with the shapes of their inputs, ``aten::mm [8×32, 32×4]``,
    and told apart by them.
    """

    def __init__(self, *, with_shapes: bool = False) -> None:
        self._with_shapes = with_shapes
        self._names = NameTable()
        self._codes: dict[tuple[str, ...], int] = {}
        self._classes: list[SpanClass] = []
        self._kept: list[Kept] = []
        self._parts: list[Spans] = []
        self._steps: list[_Step] = []
        self._calls: list[GlooCall] = []
        self._completions: list[GlooCompletion] = []
        self._kernels: list[NcclKernel] = []
        self._lanes: dict[str, int] = {}
        self._peaks = {_CPU: -1, _CUDA: -1}
        self._name_characters = 0
        self._pid = 0
        self._on_device = False

    def add(self, events: list[Event]) -> None:
        """Sort a piece of the trace into columns; events of no use are dropped here."""
        codes = self._codes
        keys = self._keys(events)
        try:
            coded = [codes[key] for key in keys]
        except KeyError:
            for key in keys:
                if key not in codes:
                    codes[key] = self._code(*key)
                    self._name_characters += sum(map(len, key))
            coded = [codes[key] for key in keys]
        code = np.array(coded, dtype=np.int32)
        for place in np.flatnonzero(code >= _FIRST_KEPT):
            self._keep(self._kept[code[place] - _FIRST_KEPT], events[place])
        is_span = (code >= 0) & (code < _FIRST_KEPT)
        if is_span.any():
            self._parts.append(
                self._spans(list(itertools.compress(events, is_span.tolist())), code[is_span])
            )

    def _keys(self, events: list[Event]) -> Sequence[tuple[str, ...]]:
        """What events of one class have in common."""
        if not self._with_shapes:
            return [(event.ph, event.cat, event.name) for event in events]
        return [(event.ph, event.cat, event.name, _shapes_of(event)) for event in events]

    @property
    def excess(self) -> str:
        """What was added that no recording has so many of; empty where nothing was."""
        kept = len(self._kernels) + len(self._calls) + len(self._completions) + len(self._steps)
        if kept > _MAX_KEPT:
            return f"more than {_MAX_KEPT:,} collectives and steps"
        if len(self._codes) > _MAX_NAMES:
            return f"more than {_MAX_NAMES:,} different names"
        if self._name_characters > _MAX_NAME_CHARACTERS:
            return f"names of more than {_MAX_NAME_CHARACTERS:,} characters"
        if len(self._lanes) > _MAX_LANES:
            return f"more than {_MAX_LANES:,} names of threads"
        return ""

    def finish(self, base: int) -> EventColumns:
        """Everything that was added; ``base`` is what makes its times nanoseconds since the
        epoch."""
        spans = join_spans(self._parts)
        spans.start[:] += base
        spans.end[:] += base
        # gloo runs on the host, also where it carries what a device computed.
        by_gloo = bool(self._completions) and not self._kernels
        if by_gloo or not self._on_device:
            rows = gloo_rows(self._calls, self._completions, base)
        else:
            rows = nccl_rows(self._kernels, base)
        peak = self._peaks[_CUDA if self._on_device else _CPU]
        return EventColumns(
            spans=spans,
            names=self._names.names,
            collectives=make_collectives(rows, peers_within_group=by_gloo or not self._on_device),
            steps=make_steps(
                StepRow(*interval(step.ts, step.dur, base), step.number) for step in self._steps
            ),
            on_device=self._on_device,
            pid=self._pid,
            peak_bytes=None if peak < 0 else peak,
        )

    def _spans(self, events: list[Event], code: NDArray[np.int32]) -> Spans:
        start = nanoseconds(np.array([event.ts for event in events]))
        length = nanoseconds(np.array([event.dur for event in events]))
        lanes = [self._lane(event.tid) for event in events]
        links = [
            0 if event.args is None else whole_number(event.args.correlation, 0) for event in events
        ]
        sizes = np.array(
            [-1 if event.args is None else whole_number(event.args.size) for event in events]
        )
        codes, place = np.unique(code, return_inverse=True)
        classes = np.array([self._classes[number] for number in codes], dtype=np.int64)
        kind, name, detail = classes.reshape(-1, 3)[place].T
        return Spans(
            start=start,
            end=start + length,
            kind=kind.astype(np.int8),
            name=name.astype(np.int32),
            lane=np.array(lanes, dtype=np.int64),
            link=np.array(links, dtype=np.int64),
            detail=detail.astype(np.int8),
            size=np.where(kind == SpanKind.COPY, sizes, 0),
        )

    def _code(self, phase: str, category: str, name: str, shapes: str = "") -> int:
        """The code of the class that events of this phase, category, name and shapes are of."""
        if phase == "i" and name == _MEMORY:
            event_class: EventClass = Kept.MEMORY
        elif phase == "X":
            event_class = self._classify(category, name, shapes)
        else:
            event_class = None
        if event_class is None:
            return _UNUSED
        if isinstance(event_class, Kept):
            self._kept.append(event_class)
            return _FIRST_KEPT + len(self._kept) - 1
        self._classes.append(event_class)
        return len(self._classes) - 1

    def _classify(self, category: str, name: str, shapes: str) -> EventClass:
        if category == "kernel":
            self._on_device = True
            if is_nccl_kernel(name):
                return Kept.NCCL_KERNEL
            return self._span(SpanKind.COMPUTE, name)
        if category in ("gpu_memcpy", "gpu_memset"):
            self._on_device = True
            detail = next(
                (kind for prefix, kind in _COPIES.items() if name.startswith(prefix)),
                SpanCopyKind.OTHER,
            )
            return self._span(SpanKind.COPY, name, detail)
        if category in ("cuda_runtime", "cuda_driver"):
            return self._classify_driver_call(name)
        if category == "cpu_op":
            if name.startswith("c10d::"):
                return Kept.GLOO_CALL
            kind = SpanKind.OPERATOR
            if name in _READBACKS:
                kind = SpanKind.READBACK
            return self._span(kind, f"{name} {shapes}".rstrip())
        if category == "user_annotation":
            return self._classify_annotation(name)
        return None

    def _classify_driver_call(self, name: str) -> EventClass:
        if name in _HOST_WAITS:
            return self._span(SpanKind.HOST_SYNC, name)
        if name.startswith(_LAUNCHES):
            return self._span(SpanKind.LAUNCH, name)
        return None

    def _classify_annotation(self, name: str) -> EventClass:
        if name.startswith(_GLOO_PREFIX):
            return Kept.GLOO_COMPLETION
        if _STEP.match(name):
            return Kept.STEP
        if name.startswith("enumerate(DataLoader)") or name == "torchscale.data_wait":
            return self._span(SpanKind.INPUT, name)
        if name == "torchscale.gc":
            return self._span(SpanKind.PAUSE, name)
        return None

    def _span(
        self, kind: SpanKind, name: str, detail: SpanCopyKind = SpanCopyKind.OTHER
    ) -> SpanClass:
        return SpanClass(kind, self._names.number(name), detail)

    def _keep(self, kept: Kept, event: Event) -> None:
        args = event.args or NO_ARGS
        match kept:
            case Kept.NCCL_KERNEL:
                self._kernels.append(
                    NcclKernel(event.ts, event.dur, event.name, args, self._lane(event.tid))
                )
            case Kept.GLOO_CALL:
                lane = self._lane(event.tid)
                self._calls.append(
                    GlooCall(event.ts, op_of(event.name), args, lane, direction_of(event.name))
                )
            case Kept.GLOO_COMPLETION:
                name = event.name.removeprefix(_GLOO_PREFIX)
                done = GlooCompletion(
                    event.ts,
                    event.dur,
                    op_of(name),
                    args,
                    direction_of(name),
                    self._lane(event.tid),
                )
                self._completions.append(done)
            case Kept.MEMORY:
                if (device := args.device_type) in self._peaks:
                    allocated = whole_number(args.allocated)
                    self._peaks[device] = max(self._peaks[device], allocated)
            case Kept.STEP:
                if (match := _STEP.match(event.name)) is not None:
                    self._steps.append(_Step(event.ts, event.dur, int(match[1])))
                    self._pid = event.pid if isinstance(event.pid, int) else 0

    def _lane(self, thread: int | str) -> int:
        """A thread's number; names, and numbers of over 62 bits, get numbers below 0, which no
        thread has."""
        if type(thread) is int and 0 <= thread < MAX_NS:
            return thread
        return self._lanes.setdefault(str(thread)[:100], -1 - len(self._lanes))


def _shapes_of(event: Event) -> str:
    """Shapes of an operator's inputs as text: ``[8×32, 32×4]``; empty for other events, and for
    operators that take no tensor."""
    if event.cat != "cpu_op" or event.args is None:
        return ""
    text = "".join(bytes(event.args.shapes).decode(errors="replace").split())
    shapes = ", ".join(shape.replace(",", "×") for shape in _SHAPE.findall(text))
    if not shapes:
        return ""
    if len(shapes) > _MAX_SHAPES:
        shapes = f"{shapes[:_MAX_SHAPES]}…"
    return f"[{shapes}]"
