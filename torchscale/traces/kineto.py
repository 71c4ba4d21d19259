"""Traces of ``torch.profiler`` (Kineto): Chrome trace JSON, read in pieces.

A million events are ordinary. The file is decoded a piece at a time into the few fields that are used, and only
columns of numbers are kept.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath
from typing import BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from torchscale.errors import TraceError
from torchscale.schema.span import Collectives, CopyKind, RankTrace, SpanKind, Spans
from torchscale.traces.columns import NameTable, is_nccl, join_spans, make_collectives, make_steps, op_of

_PIECE_BYTES = 1 << 20
_MAX_HEADER_BYTES = 16 << 20
_MAX_EVENT_BYTES = 64 << 20
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN_EVENTS = re.compile(rb"\}\s*,\s*\{")
_GLOO_STAND_INS = {"reduce_scatter": "all_reduce"}
"""What gloo says that it does where it has no operation of its own."""
_STEP = re.compile(r"ProfilerStep#(\d+)$")
_RANK_IN_NAME = re.compile(r"(?:rank|worker|^r)[-_.]?(\d{1,6})", re.IGNORECASE)
_ELEMENT_BYTES = {
    "float": 4, "float32": 4, "double": 8, "float64": 8, "half": 2, "float16": 2, "bfloat16": 2, "int": 4, "int32": 4,
    "long": 8, "long int": 8, "int64": 8, "short": 2, "int16": 2, "char": 1, "int8": 1, "byte": 1,
    "unsigned char": 1, "uint8": 1, "bool": 1, "float8_e4m3fn": 1, "float8_e5m2": 1, "c10::bfloat16": 2,
    "c10::half": 2, "signed char": 1,
}  # fmt: skip
_LAUNCHES = ("cudaLaunch", "cuLaunch", "cudaMemcpyAsync", "cudaMemsetAsync", "cudaGraphLaunch", "hipLaunch")
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
    "Memcpy HtoD (Pageable": CopyKind.HOST_TO_DEVICE_PAGEABLE,
    "Memcpy HtoD": CopyKind.HOST_TO_DEVICE,
    "Memcpy DtoH (Device -> Pageable": CopyKind.DEVICE_TO_HOST_PAGEABLE,
    "Memcpy DtoH": CopyKind.DEVICE_TO_HOST,
    "Memset": CopyKind.FILL,
}


class _Args(msgspec.Struct, gc=False):
    """The arguments of an event that are used; the others are skipped over."""

    correlation: int = 0
    dtype: str = ""
    in_elements: int = msgspec.field(name="In msg nelems", default=-1)
    out_elements: int = msgspec.field(name="Out msg nelems", default=-1)
    group: str = msgspec.field(name="Process Group Name", default="")
    sequence: int = msgspec.field(name="Seq", default=-1)
    collective: str = msgspec.field(name="Collective name", default="")
    allocated: int = msgspec.field(name="Total Allocated", default=-1)
    device_type: int = msgspec.field(name="Device Type", default=-1)
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default_factory=msgspec.Raw)
    types: msgspec.Raw = msgspec.field(name="Input type", default_factory=msgspec.Raw)


_NO_ARGS = _Args()


class _Event(msgspec.Struct, gc=False):
    """An event of the trace."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: _Args | None = None


class _DistributedInfo(msgspec.Struct):
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None


class _Header(msgspec.Struct):
    base_nanoseconds: int = msgspec.field(name="baseTimeNanoseconds", default=0)
    distributed: _DistributedInfo | None = msgspec.field(name="distributedInfo", default=None)
    host: str | None = msgspec.field(name="host_name", default=None)


_decode_events = msgspec.json.Decoder(list[_Event]).decode
_decode_header = msgspec.json.Decoder(_Header).decode


def is_kineto(beginning: bytes) -> bool:
    """Whether a file that starts like this is a Chrome trace."""
    return _EVENTS_KEY.search(beginning) is not None or (
        beginning.lstrip()[:1] == b"[" and re.search(rb'"ph"\s*:', beginning) is not None
    )


def read_kineto(file: BinaryIO, source: str) -> RankTrace:
    """One rank's trace.

    Args:
        file: The JSON, already decompressed.
        source: What to call it; where the trace has no rank, a number in this name stands for it (``rank3``).

    Raises:
        TraceError: it is not a Chrome trace, is cut off, or an event has another form than torch.profiler writes.
    """
    builder = _Builder(source)
    stream = _Stream(file, source)
    for events in stream.events():
        builder.add(events)
    return builder.finish(stream.header, source)


class _Stream:
    """Pieces of the event list, and what stands around it.

    A piece ends between two events; where that is cannot be told from the text alone (a name may contain ``},{``), but
    only a true end leaves a list that decodes.
    """

    def __init__(self, file: BinaryIO, source: str) -> None:
        self._file, self._source = file, source
        self._before = b""
        self._offset = 0
        self.header = _Header()

    def events(self) -> Iterator[list[_Event]]:
        rest = self._open()
        while piece := self._file.read(_PIECE_BYTES):
            rest += piece
            cut = self._cut(rest)
            if cut is None:
                if len(rest) > _MAX_EVENT_BYTES:
                    raise self._error("an event of over 64 MiB, or text that is not JSON")
                continue
            events, used = cut
            yield events
            self._offset += used
            rest = rest[used:]
        yield self._last(rest)

    def _open(self) -> bytes:
        """Read up to the first event; returns what follows the opening bracket."""
        text = self._file.read(_PIECE_BYTES)
        if text.lstrip()[:1] == b"[":  # the bare list that Chrome also accepts
            return text.lstrip()[1:]
        while (key := _EVENTS_KEY.search(text)) is None:
            more = self._file.read(_PIECE_BYTES)
            if not more or len(text) > _MAX_HEADER_BYTES:
                raise TraceError(
                    f"{self._source}: no traceEvents in it; not a trace of torch.profiler",
                    hint="name .json, .json.gz or .tar.gz files that torch.profiler exported, or nsys files",
                )
            text += more
        self._before = text[: key.start()]
        self._offset = key.end()
        return text[key.end() :]

    def _cut(self, text: bytes) -> tuple[list[_Event], int] | None:
        """The events up to the last end of one that ``text`` holds, and how many bytes they and their comma take."""
        end = len(text)
        for window in (1 << 14, 1 << 18, end):
            start = max(0, end - window)
            for match in reversed(list(_BETWEEN_EVENTS.finditer(text, start))[-64:]):
                events = self._try(text[: match.start() + 1])
                if events is not None:
                    return events, match.end() - 1
            if start == 0:
                break
        return None

    def _try(self, text: bytes) -> list[_Event] | None:
        try:
            return _decode_events(b"[" + text + b"]")
        except msgspec.ValidationError as error:
            raise self._error(str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def _last(self, text: bytes) -> list[_Event]:
        """The events to the list's end; sets the header from what stands before and after the list."""
        position = len(text)
        for _ in range(256):
            position = text.rfind(b"]", 0, position)
            if position < 0:
                break
            body = text[:position].rstrip().removesuffix(b",")
            events = self._try(body)
            if events is not None:
                self._read_header(text[position + 1 :])
                return events
        # The profiler of a process that was ended leaves a list without an end.
        raise self._error("the trace is cut off or not valid JSON")

    def _read_header(self, after: bytes) -> None:
        if not self._before:
            return
        try:
            self.header = _decode_header(self._before + b'"traceEvents": []' + after)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self._error(f"what stands around traceEvents: {error}") from error

    def _error(self, what: str) -> TraceError:
        return TraceError(
            f"{self._source}: {what} (after byte {self._offset:,})", hint="record it again, or leave this file out"
        )


@dataclass(frozen=True)
class _Class:
    """What events of one phase, category and name are; ``special`` ones are kept whole."""

    kind: SpanKind | None = None
    name: int = 0
    detail: int = 0
    special: str = ""


_MEMORY = "[memory]"
_CPU, _CUDA = 0, 1
"""Device types as torch numbers them."""
_USELESS = -1
_SPECIAL = 1 << 30


class _Builder:
    """Collects columns piece by piece."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._names = NameTable()
        self._codes: dict[tuple[str, str, str], int] = {}
        self._classes: list[tuple[int, int, int]] = []
        self._specials: list[str] = []
        self._parts: list[Spans] = []
        self._steps: list[tuple[float, float, int]] = []
        self._arrivals: list[tuple[float, str, _Args, int]] = []
        self._completions: list[tuple[float, float, str, _Args]] = []
        self._kernels: list[tuple[float, float, str, _Args, int]] = []
        self._lanes: dict[str, int] = {}
        self._peaks: dict[int, int] = {}
        self._pid = 0
        self._on_device = False

    def add(self, events: list[_Event]) -> None:
        """Sort a piece of the trace into columns; events of no use are dropped here."""
        codes = self._codes
        keys = [(event.ph, event.cat, event.name) for event in events]
        try:
            found = [codes[key] for key in keys]
        except KeyError:
            for key in keys:
                if key not in codes:
                    codes[key] = self._code(*key)
            found = [codes[key] for key in keys]
        code = np.array(found, dtype=np.int32)
        for place in np.flatnonzero(code >= _SPECIAL):
            self._note(self._specials[code[place] - _SPECIAL], events[place])
        plain = (code >= 0) & (code < _SPECIAL)
        if plain.any():
            self._parts.append(self._columns(list(itertools.compress(events, plain.tolist())), code[plain]))

    def _columns(self, events: list[_Event], code: NDArray[np.int32]) -> Spans:
        start = _nanoseconds(np.array([event.ts for event in events]))
        length = np.maximum(_nanoseconds(np.array([event.dur for event in events])), 0)
        lanes = [event.tid if type(event.tid) is int else self._lane(event.tid) for event in events]
        links = [0 if event.args is None else event.args.correlation for event in events]
        classes = np.array(self._classes, dtype=np.int64).reshape(-1, 3)[code]
        return Spans(
            start=start,
            end=start + length,
            kind=classes[:, 0].astype(np.int8),
            name=classes[:, 1].astype(np.int32),
            lane=np.array(lanes, dtype=np.int64),
            link=np.array(links, dtype=np.int64),
            detail=classes[:, 2].astype(np.int8),
        )

    def _code(self, phase: str, category: str, name: str) -> int:
        """The number of the class that events of this phase, category and name are of: those of no use below 0, those
        that are kept whole from ``_SPECIAL`` on."""
        if phase == "i" and name == _MEMORY:
            found = _Class(special="memory")
        else:
            found = self._classify(category, name) if phase == "X" else _Class()
        if found.special:
            self._specials.append(found.special)
            return _SPECIAL + len(self._specials) - 1
        if found.kind is None:
            return _USELESS
        self._classes.append((found.kind, found.name, found.detail))
        return len(self._classes) - 1

    def _classify(self, category: str, name: str) -> _Class:  # noqa: PLR0911 - one return a category
        if category == "kernel":
            self._on_device = True
            return _Class(special="nccl") if is_nccl(name) else self._span(SpanKind.COMPUTE, name)
        if category in ("gpu_memcpy", "gpu_memset"):
            self._on_device = True
            detail = next((kind for sign, kind in _COPIES.items() if name.startswith(sign)), CopyKind.OTHER)
            return self._span(SpanKind.COPY, name, detail)
        if category in ("cuda_runtime", "cuda_driver"):
            if name in _HOST_WAITS:
                return self._span(SpanKind.HOST_SYNC, name)
            return self._span(SpanKind.LAUNCH, name) if name.startswith(_LAUNCHES) else _Class()
        if category == "cpu_op":
            if name.startswith("c10d::"):
                return _Class(special="arrival")
            return self._span(SpanKind.READBACK if name in _READBACKS else SpanKind.OPERATOR, name)
        if category == "user_annotation":
            if name.startswith("gloo:"):
                return _Class(special="gloo")
            if _STEP.match(name):
                return _Class(special="step")
            if name.startswith("enumerate(DataLoader)") or name == "torchscale.data_wait":
                return self._span(SpanKind.INPUT, name)
            if name == "torchscale.gc":
                return self._span(SpanKind.PAUSE, name)
        return _Class()

    def _span(self, kind: SpanKind, name: str, detail: int = 0) -> _Class:
        return _Class(kind, self._names.number(name), detail)

    def _note(self, special: str, event: _Event) -> None:
        args = event.args or _NO_ARGS
        if special == "nccl":
            self._kernels.append((event.ts, event.dur, event.name, args, self._lane(event.tid)))
        elif special == "memory":
            self._peaks[args.device_type] = max(self._peaks.get(args.device_type, -1), args.allocated)
        elif special == "arrival":
            self._arrivals.append((event.ts, op_of(event.name), args, self._lane(event.tid)))
        elif special == "gloo":
            self._completions.append((event.ts, event.dur, op_of(event.name[len("gloo:") :]), args))
        else:
            match = _STEP.match(event.name)
            if match is not None:
                self._steps.append((event.ts, event.dur, int(match[1])))
                self._pid = event.pid if isinstance(event.pid, int) else 0

    def _lane(self, thread: int | str) -> int:
        return thread if isinstance(thread, int) else self._lanes.setdefault(thread, -1 - len(self._lanes))

    def finish(self, header: _Header, source: str) -> RankTrace:
        """The rank's trace, its times in nanoseconds since the epoch."""
        base = header.base_nanoseconds
        info = header.distributed or _DistributedInfo()
        spans = join_spans(self._parts)
        spans.start[:] += base
        spans.end[:] += base
        rank = info.rank if info.rank is not None else _rank_in_name(source)
        if rank is None:
            raise TraceError(
                f"{source}: the trace does not say which rank it is of, nor does its name",
                hint="rename it so that it contains rank0, rank1 …",
            )
        return RankTrace(
            rank=rank,
            host=header.host,
            pid=self._pid,
            on_device=self._on_device,
            backend=info.backend,
            world_size=info.world_size,
            source=source,
            names=self._names.names,
            spans=spans,
            collectives=self._collectives(base),
            peak_memory_bytes=self._peaks.get(_CUDA if self._on_device else _CPU),
            steps=make_steps([(*_interval(ts, dur, base), number) for ts, dur, number in self._steps]),
        )

    def _collectives(self, base: int) -> Collectives:
        """NCCL: its kernels. gloo: the n-th call of an operation until the n-th completion of it."""
        if self._kernels or self._on_device:
            return make_collectives(
                [
                    (
                        *_interval(ts, dur, base),
                        op_of(args.collective or name),
                        args.group,
                        _payload(args),
                        args.sequence,
                        stream,
                    )
                    for ts, dur, name, args, stream in self._kernels
                ]
            )
        rows = []
        told = {item[2] for item in self._completions}
        as_done = {op: _GLOO_STAND_INS.get(op, op) if op not in told else op for _, op, _, _ in self._arrivals}
        for name in sorted(set(as_done.values())):
            arrivals = sorted((item for item in self._arrivals if as_done[item[1]] == name), key=lambda item: item[0])
            done = sorted((item for item in self._completions if item[2] == name), key=lambda item: item[0])
            # A recording that began between a call and its completion has a completion too many at its start.
            while done and arrivals and done[0][0] < arrivals[0][0]:
                del done[0]
            for (called, op, call, thread), (ts, dur, _, args) in zip(arrivals, done, strict=False):
                start = _interval(called, 0.0, base)[0]
                end = _interval(ts, dur, base)[1]
                size = _payload(args)
                size = size if size >= 0 else _payload(call)
                rows.append((start, max(start, end), op, call.group, size, -1, thread))
        return make_collectives(rows)


def _nanoseconds(microseconds: NDArray[np.float64]) -> NDArray[np.int64]:
    """Exact: microseconds since the epoch times 1,000 do not fit a float's 53 bits."""
    whole = np.floor(microseconds)
    return whole.astype(np.int64) * 1000 + np.rint((microseconds - whole) * 1000).astype(np.int64)


def _interval(ts: float, dur: float, base: int) -> tuple[int, int]:
    start = base + int(_nanoseconds(np.array([ts]))[0])
    return start, start + max(0, round(dur * 1000))


def _payload(args: _Args) -> int:
    """Bytes as nccl-tests counts them: the larger of what goes in and what comes out; -1 where it is not told."""
    elements = max(args.in_elements, args.out_elements)
    if elements >= 0:
        size = _ELEMENT_BYTES.get(args.dtype.lower())
        return -1 if size is None else elements * size
    return _bytes_of_shapes(args)


def _bytes_of_shapes(args: _Args) -> int:
    if not bytes(args.shapes):
        return -1
    try:
        shapes: object = msgspec.json.decode(args.shapes)
        types: object = msgspec.json.decode(args.types) if bytes(args.types) else []
    except msgspec.DecodeError:
        return -1
    total, known = 0, False
    if isinstance(shapes, list) and isinstance(types, list):
        for shape, kind in zip(shapes, types, strict=False):
            size = _ELEMENT_BYTES.get(str(kind).lower())
            if size is not None and isinstance(shape, list) and shape and all(isinstance(n, int) for n in shape):
                total += size * int(np.prod(shape))
                known = True
    return total if known else -1


def _rank_in_name(source: str) -> int | None:
    found = _RANK_IN_NAME.search(PurePath(source).name)
    return None if found is None else int(found[1])
