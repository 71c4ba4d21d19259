"""What the events of a trace are, and the columns that they become."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torchscale.catalog.communication import communicates, is_communication_operator
from torchscale.features.trace.readers.columns import NameTable, join_spans
from torchscale.features.trace.readers.kineto import categories
from torchscale.features.trace.readers.kineto.collectives import nanoseconds
from torchscale.features.trace.readers.kineto.forms import NO_ARGS, Event
from torchscale.features.trace.readers.kineto.kept import GLOO_PREFIX, STEP, Kept, KeptEvents
from torchscale.features.trace.readers.kineto.processes import device_of, label_of
from torchscale.features.trace.readers.kineto.rank_columns import (
    Common,
    EventColumns,
    SpanPiece,
    columns_by_device,
    columns_of,
)
from torchscale.features.trace.readers.soundness import MAX_NS, whole_number
from torchscale.features.trace.span import SpanCopyKind, SpanKind, Spans

_READBACKS = {"aten::_local_scalar_dense"}
_COPIES = {
    "Memcpy HtoD (Pageable": SpanCopyKind.HOST_TO_DEVICE_PAGEABLE,
    "Memcpy HtoD": SpanCopyKind.HOST_TO_DEVICE,
    "Memcpy DtoH (Device -> Pageable": SpanCopyKind.DEVICE_TO_HOST_PAGEABLE,
    "Memcpy DtoH": SpanCopyKind.DEVICE_TO_HOST,
    "Memcpy DtoD": SpanCopyKind.WITHIN_DEVICE,
    "Memcpy PtoP": SpanCopyKind.BETWEEN_DEVICES,
    "Memset": SpanCopyKind.FILL,
    "CopyHostToDevice": SpanCopyKind.HOST_TO_DEVICE_UNKNOWN,
    "CopyDeviceToHost": SpanCopyKind.DEVICE_TO_HOST_UNKNOWN,
    "CopyDeviceToDevice": SpanCopyKind.WITHIN_DEVICE,
    "CopyPeerToPeer": SpanCopyKind.BETWEEN_DEVICES,
}
"""The first prefix that fits decides: the longer one stands before the shorter."""
_MEMORY = "[memory]"
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
_MAX_SHOWN = 80
_LEAST_OF_EVENTS = 0.05
"""A process of the host is one of several from this share of the events of the largest on: a stray
event makes none."""
_TOO_MANY = "no recording of training steps has so many"


class SpanClass(NamedTuple):
    """What the spans of one category, name and process have in common: kind, index of the name,
    kind of copy, device, place of the process."""

    kind: SpanKind
    name: int
    detail: SpanCopyKind
    device: int
    process: int


EventClass = SpanClass | Kept | None
"""A class of spans, events that are kept one by one, or events of no use."""
_UNUSED = -1
"""Code of events of no use."""
_FIRST_KEPT = 1 << 30
"""Codes from here on are of events that are kept one by one, below of classes of spans."""


class ColumnBuilder:
    """Sorts events into columns, piece by piece.

    Every event gets the code of its class through one dictionary look-up of (phase, category, name,
    process): a trace has a million events and a few hundred such, so each is classified once.
    ``with_shapes``: operators are named with the shapes of their inputs, ``aten::mm [8×32, 32×4]``,
    and told apart by them. :attr:`unread` counts events by categories that may matter and are not
    read, and :attr:`has_launches` says whether the host handed work to a device.
    """

    def __init__(self, *, with_shapes: bool = False) -> None:
        self._with_shapes = with_shapes
        self._names = NameTable()
        self._codes: dict[tuple[str | int, ...], int] = {}
        self._classes: list[SpanClass] = []
        self._hosts: dict[int, tuple[KeptEvents, int | str]] = {}
        self._kept: list[tuple[Kept, KeptEvents]] = []
        self._parts: list[SpanPiece] = []
        self._processes: dict[str, KeptEvents] = {}
        self._lanes: dict[str, int] = {}
        self._communicating: set[int] = set()
        self._unread_codes: dict[int, str] = {}
        self._name_characters = 0
        self._kept_count = 0
        self._bad_time = ""
        self.unread = Counter[str]()
        self.is_old = False
        self.has_launches = False

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
                    self._name_characters += sum(len(str(part)) for part in key)
            coded = [codes[key] for key in keys]
        code = np.array(coded, dtype=np.int32)
        for place in np.flatnonzero(code >= _FIRST_KEPT):
            kept, process = self._kept[code[place] - _FIRST_KEPT]
            self._keep(kept, process, events[place])
        is_span = (code >= 0) & (code < _FIRST_KEPT)
        if is_span.any():
            self._parts.append(
                self._part(list(itertools.compress(events, is_span.tolist())), code[is_span])
            )
        self._count_hosts(code[is_span])
        for unread, category in self._unread_codes.items():
            self.unread[category] += int((code == unread).sum())

    def _keys(self, events: list[Event]) -> Sequence[tuple[Any, ...]]:
        """What events of one class have in common."""
        if not self._with_shapes:
            return [(event.ph, event.cat, event.name, event.pid) for event in events]
        return [(event.ph, event.cat, event.name, event.pid, _shapes_of(event)) for event in events]

    @property
    def problem(self) -> str:
        """What was added that no recording has; empty where nothing was."""
        if self._bad_time:
            return self._bad_time
        if self._kept_count > _MAX_KEPT:
            return f"more than {_MAX_KEPT:,} collectives and steps; {_TOO_MANY}"
        if len(self._codes) > _MAX_NAMES:
            return f"more than {_MAX_NAMES:,} different names; {_TOO_MANY}"
        if self._name_characters > _MAX_NAME_CHARACTERS:
            return f"names of more than {_MAX_NAME_CHARACTERS:,} characters; {_TOO_MANY}"
        if len(self._lanes) > _MAX_LANES:
            return f"more than {_MAX_LANES:,} names of threads; {_TOO_MANY}"
        return ""

    @property
    def on_device(self) -> bool:
        """Whether anything ran on a device."""
        return any(process.on_device for process in self._processes.values())

    @property
    def pids(self) -> list[int | str]:
        """Processes of the host that share one rank's place in the file; none where it has one."""
        for process in self._processes.values():
            least = _LEAST_OF_EVENTS * max(process.pids.values(), default=0)
            pids = [pid for pid, count in process.pids.items() if count > least]
            if len(pids) > 1:
                return pids
        return []

    def finish(self, base: int) -> list[EventColumns]:
        """Everything that was added, by rank; ``base`` is what makes its times nanoseconds since
        the epoch. A process that ran kernels on several devices becomes one rank a device."""
        spans = join_spans([part.spans for part in self._parts])
        spans.start[:] += base
        spans.end[:] += base
        empty = np.zeros(0, dtype=np.int64)
        rest = (
            np.concatenate([empty, *(part[column] for part in self._parts)])
            for column in range(1, 4)
        )
        whole = SpanPiece(spans, *rest)
        self._parts = []
        columns: list[EventColumns] = []
        common = Common(self._names.names, self._communicating, base)
        for place, process in enumerate(self._processes.values()):
            mine = whole
            if len(self._processes) > 1:
                mine = whole.only(whole.process == place)
            if len(mine.spans) or process.steps or process.kernels:
                columns += columns_by_device(process, mine, common)
        return columns or [columns_of(KeptEvents(""), whole, common)]

    def _part(self, events: list[Event], code: NDArray[np.int32]) -> SpanPiece:
        start = np.array([event.ts for event in events])
        length = np.array([event.dur for event in events])
        self._check_times(start + length, events)
        start, length = np.nan_to_num(start), np.nan_to_num(length)
        args = [event.args or NO_ARGS for event in events]
        links = _whole_numbers([one.correlation for one in args], 0)
        sizes = _whole_numbers([one.size for one in args], -1)
        codes, place = np.unique(code, return_inverse=True)
        classes = np.array([self._classes[number] for number in codes], dtype=np.int64)
        kind, name, detail, device, process = classes.reshape(-1, 5)[place].T
        # Of most events, which are of the host, neither is of use.
        asked = device != categories.HOST
        if self._communicating:
            asked = asked | np.isin(name, list(self._communicating))
        places = np.flatnonzero(asked).tolist()
        external = np.zeros(len(events), dtype=np.int64)
        external[places] = _whole_numbers([args[place].external for place in places], 0)
        told = np.full(len(events), -1, dtype=np.int64)
        told[places] = _whole_numbers([args[place].device for place in places], -1)
        first = nanoseconds(start)
        spans = Spans(
            start=first,
            end=first + nanoseconds(length),
            kind=kind.astype(np.int8),
            name=name.astype(np.int32),
            lane=self._lane_column([event.tid for event in events]),
            link=links,
            detail=detail.astype(np.int8),
            size=np.where(kind == SpanKind.COPY, sizes, 0),
        )
        return SpanPiece(
            spans,
            external,
            np.where((device != categories.HOST) & (told >= 0), told, device),
            process,
        )

    def _check_times(self, times: NDArray[np.float64], events: Sequence[Event]) -> None:
        wrong = np.flatnonzero(np.isnan(times))
        if len(wrong):
            self._note_time(events[wrong[0]])

    def _note_time(self, event: Event) -> None:
        self._bad_time = f"the time of event {event.name[:_MAX_SHOWN]!r} is no number"

    def _code(self, phase: str, category: str, name: str, pid: int | str, shapes: str = "") -> int:
        """The code of the class that events of this phase, category, name, process and shapes are
        of."""
        if phase == "i" and name == _MEMORY:
            process = self._process_of(pid)
            event_class: EventClass = Kept.MEMORY
        elif phase == "X":
            if category in categories.OLD:
                self.is_old = True
            process = self._process_of(pid)
            event_class = self._classify(category, name, shapes, pid)
        else:
            return _UNUSED
        if event_class is None and phase == "X" and categories.is_unread(category):
            return self._unread_code(category)
        if event_class is None:
            return _UNUSED
        if isinstance(event_class, Kept):
            self._kept.append((event_class, process))
            return _FIRST_KEPT + len(self._kept) - 1
        self._classes.append(event_class)
        if event_class.device == categories.HOST:
            self._hosts[len(self._classes) - 1] = process, pid
        return len(self._classes) - 1

    def _count_hosts(self, code: NDArray[np.int32]) -> None:
        counts = np.bincount(code)
        for number in np.flatnonzero(counts).tolist():
            if number in self._hosts:
                process, pid = self._hosts[number]
                process.pids[pid] += int(counts[number])

    def _unread_code(self, category: str) -> int:
        for code, known in self._unread_codes.items():
            if known == category:
                return code
        code = _UNUSED - 1 - len(self._unread_codes)
        self._unread_codes[code] = category
        return code

    def _process_of(self, pid: int | str) -> KeptEvents:
        """The rank that a process is of: the one of the file, unless that puts names of ranks
        before the numbers of processes."""
        label = label_of(pid)
        return self._processes.setdefault(label, KeptEvents(label))

    def _classify(self, category: str, name: str, shapes: str, pid: int | str) -> EventClass:
        process = self._process_of(pid)
        old, category = category in categories.OLD, categories.OLD.get(category, category)
        if categories.is_copy(category, name):
            process.on_device = True
            detail = next(
                (kind for prefix, kind in _COPIES.items() if name.startswith(prefix)),
                SpanCopyKind.OTHER,
            )
            return self._span(SpanKind.COPY, name, pid, detail, device_of(pid))
        if category in categories.KERNELS:
            process.on_device = True
            if communicates(name):
                return Kept.COMMUNICATION_KERNEL
            return self._span(SpanKind.COMPUTE, name, pid, device=device_of(pid))
        if categories.is_driver(category):
            return self._classify_driver_call(name, pid)
        if category == "cpu_op":
            annotation = self._classify_annotation(name, pid) if old else None
            return annotation or self._classify_operator(name, shapes, pid)
        if category == "user_annotation":
            return self._classify_annotation(name, pid)
        if not category:
            return Kept.UNTITLED
        return None

    def _classify_operator(self, name: str, shapes: str, pid: int | str) -> EventClass:
        if name.startswith("c10d::"):
            return Kept.GLOO_CALL
        kind = SpanKind.OPERATOR
        if name in _READBACKS:
            kind = SpanKind.READBACK
        found = self._span(kind, f"{name} {shapes}".rstrip(), pid)
        if is_communication_operator(name):
            self._communicating.add(found.name)
        return found

    def _classify_driver_call(self, name: str, pid: int | str) -> EventClass:
        if categories.is_host_wait(name):
            return self._span(SpanKind.HOST_SYNC, name, pid)
        if categories.is_launch(name):
            self.has_launches = True
            return self._span(SpanKind.LAUNCH, name, pid)
        return None

    def _classify_annotation(self, name: str, pid: int | str) -> EventClass:
        if name.startswith(GLOO_PREFIX):
            return Kept.GLOO_COMPLETION
        if STEP.match(name):
            return Kept.STEP
        if name.startswith("enumerate(DataLoader)") or name == "torchscale.data_wait":
            return self._span(SpanKind.INPUT, name, pid)
        if name == "torchscale.gc":
            return self._span(SpanKind.PAUSE, name, pid)
        return None

    def _span(
        self,
        kind: SpanKind,
        name: str,
        pid: int | str,
        detail: SpanCopyKind = SpanCopyKind.OTHER,
        device: int = categories.HOST,
    ) -> SpanClass:
        place = list(self._processes).index(label_of(pid))
        return SpanClass(kind, self._names.number(name), detail, device, place)

    def _keep(self, kept: Kept, process: KeptEvents, event: Event) -> None:
        if kept is Kept.UNTITLED:
            self.unread[categories.UNTITLED_TASK] += bool((event.args or NO_ARGS).task_type)
        elif math.isnan(event.ts + event.dur):
            self._note_time(event)
        else:
            self._kept_count += 1
            process.keep(kept, event, self._lane(event.tid))

    def _lane_column(self, threads: Sequence[int | str]) -> NDArray[np.int64]:
        if set(map(type, threads)) == {int}:
            column = _whole_numbers(threads, -1)
            if (column >= 0).all():
                return column
        return np.array([self._lane(thread) for thread in threads], dtype=np.int64)

    def _lane(self, thread: int | str) -> int:
        """A thread's number; names, and numbers of over 62 bits, get numbers below 0, which no
        thread has."""
        if type(thread) is int and 0 <= thread < MAX_NS:
            return thread
        return self._lanes.setdefault(str(thread)[:100], -1 - len(self._lanes))


def _whole_numbers(values: Sequence[Any], missing: int) -> NDArray[np.int64]:
    """A column of numbers; those that do not fit 62 bits and sign are ``missing``."""
    try:
        column = np.array(values, dtype=np.int64)
    except OverflowError:
        column = np.array([whole_number(value, missing) for value in values], dtype=np.int64)
    return np.where((column > -MAX_NS) & (column < MAX_NS), column, missing)


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
