"""The columns that the events of a trace become."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.readers.columns import join_spans
from torchscale.features.trace.readers.kineto import categories
from torchscale.features.trace.readers.kineto.collectives import nanoseconds
from torchscale.features.trace.readers.kineto.event_classes import FIRST_KEPT, EventClasses
from torchscale.features.trace.readers.kineto.forms import NO_ARGS, Event
from torchscale.features.trace.readers.kineto.kept import Kept, KeptEvents
from torchscale.features.trace.readers.kineto.rank_columns import (
    Common,
    EventColumns,
    SpanPiece,
    columns_by_device,
    columns_of,
)
from torchscale.features.trace.readers.soundness import MAX_NS, whole_number
from torchscale.features.trace.span import SpanKind, Spans

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


class ColumnBuilder:
    """Sorts events into columns, piece by piece.

    Every event gets the code of its class through one dictionary look-up of (phase, category, name,
    process): a trace has a million events and a few hundred such, so each is classified once.
    ``with_shapes``: operators are named with the shapes of their inputs, ``aten::mm [8×32, 32×4]``,
    and told apart by them. :attr:`unread` counts events by categories that may matter and are not
    read.
    """

    def __init__(self, *, with_shapes: bool = False) -> None:
        self._with_shapes = with_shapes
        self._codes: dict[tuple[str | int, ...], int] = {}
        self._classes = EventClasses()
        self._parts: list[SpanPiece] = []
        self._lanes: dict[str, int] = {}
        self._name_characters = 0
        self._kept_count = 0
        self._bad_time = ""
        self.unread = Counter[str]()

    def add(self, events: list[Event]) -> None:
        """Sort a piece of the trace into columns; events of no use are dropped here."""
        codes = self._codes
        keys = self._keys(events)
        try:
            coded = [codes[key] for key in keys]
        except KeyError:
            for key in keys:
                if key not in codes:
                    codes[key] = self._classes.code_of(*key)
                    self._name_characters += sum(len(str(part)) for part in key)
            coded = [codes[key] for key in keys]
        code = np.array(coded, dtype=np.int32)
        for place in np.flatnonzero(code >= FIRST_KEPT):
            kept, process = self._classes.kept[code[place] - FIRST_KEPT]
            self._keep(kept, process, events[place])
        is_span = (code >= 0) & (code < FIRST_KEPT)
        if is_span.any():
            self._parts.append(
                self._part(list(itertools.compress(events, is_span.tolist())), code[is_span])
            )
        self._count_hosts(code[is_span])
        for unread, category in self._classes.unread.items():
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
    def is_old(self) -> bool:
        """Whether an old version wrote it, by its categories."""
        return self._classes.is_old

    @property
    def has_launches(self) -> bool:
        """Whether the host handed work to a device."""
        return self._classes.has_launches

    @property
    def on_device(self) -> bool:
        """Whether anything ran on a device."""
        return any(process.on_device for process in self._classes.processes.values())

    @property
    def pids(self) -> list[int | str]:
        """Processes of the host that share one rank's place in the file; none where it has one."""
        for process in self._classes.processes.values():
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
        common = Common(self._classes.names.names, self._classes.communicating, base)
        for place, process in enumerate(self._classes.processes.values()):
            mine = whole
            if len(self._classes.processes) > 1:
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
        classes = np.array([self._classes.spans[number] for number in codes], dtype=np.int64)
        kind, name, detail, device, process = classes.reshape(-1, 5)[place].T
        # Of most events, which are of the host, neither is of use.
        asked = device != categories.HOST
        if self._classes.communicating:
            asked = asked | np.isin(name, list(self._classes.communicating))
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

    def _count_hosts(self, code: NDArray[np.int32]) -> None:
        counts = np.bincount(code)
        for number in np.flatnonzero(counts).tolist():
            if number in self._classes.hosts:
                process, pid = self._classes.hosts[number]
                process.pids[pid] += int(counts[number])

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
