"""The file: pieces of the event list decoded one after the other, and the header around the list."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

import msgspec

from torchscale.errors import TraceError

EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
"""What stands before the first event."""
_PIECE_BYTES = 1 << 20
_MAX_HEADER_BYTES = 16 << 20
"""The header holds device properties, a few KiB; a file without events is refused before all of it is in memory."""
_MAX_EVENT_BYTES = 64 << 20
"""The largest events carry call stacks and shapes, some KiB; beyond this the text is not JSON, and is not collected."""
_BETWEEN_EVENTS = re.compile(rb"\}\s*,\s*\{")
_CUT_WINDOWS = (1 << 14, 1 << 18)
"""Where the last end of an event is looked for: nearly always within the last 16 KiB of a piece."""
_MAX_CUTS, _MAX_LIST_ENDS = 64, 256
"""How many places are tried before a text is taken for broken; each costs a decoding of the piece."""


class EventArgs(msgspec.Struct, gc=False):
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
    group_ranks: msgspec.Raw = msgspec.field(name="Process Group Ranks", default_factory=msgspec.Raw)
    source: msgspec.Raw = msgspec.field(name="Src Rank", default_factory=msgspec.Raw)
    target: msgspec.Raw = msgspec.field(name="Dst Rank", default_factory=msgspec.Raw)
    values: msgspec.Raw = msgspec.field(name="Concrete Inputs", default_factory=msgspec.Raw)
    shapes: msgspec.Raw = msgspec.field(name="Input Dims", default_factory=msgspec.Raw)
    types: msgspec.Raw = msgspec.field(name="Input type", default_factory=msgspec.Raw)


NO_ARGS = EventArgs()
"""Of an event without arguments."""


class Event(msgspec.Struct, gc=False):
    """An event of the trace."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: float = 0.0
    dur: float = 0.0
    args: EventArgs | None = None


class DistributedInfo(msgspec.Struct):
    """What the process group said of itself."""

    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None


class Header(msgspec.Struct):
    """What the trace says of its process."""

    base_nanoseconds: int = msgspec.field(name="baseTimeNanoseconds", default=0)
    distributed: DistributedInfo | None = msgspec.field(name="distributedInfo", default=None)
    host: str | None = msgspec.field(name="host_name", default=None)


_decode_events = msgspec.json.Decoder(list[Event]).decode
_decode_header = msgspec.json.Decoder(Header).decode


class EventStream:
    """The event list in pieces, and the header, which may stand before and after the list.

    A piece ends between two events. The text alone does not show where that is (a name may contain ``},{``), but only a
    true end of an event leaves a list that decodes.
    """

    def __init__(self, file: BinaryIO, source: str) -> None:
        self._file, self._source = file, source
        self._before = b""
        self._offset = 0
        self.header = Header()

    def events(self) -> Iterator[list[Event]]:
        """The events, some thousand at a time; :attr:`header` is set once all are read.

        Raises:
            TraceError: the text is not a trace, is cut off, or an event has another form than torch.profiler writes.
        """
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
        while (key := EVENTS_KEY.search(text)) is None:
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

    def _cut(self, text: bytes) -> tuple[list[Event], int] | None:
        """The events up to the last end of one that ``text`` holds, and how many bytes they and their comma take."""
        end = len(text)
        for window in (*_CUT_WINDOWS, end):
            start = max(0, end - window)
            for match in reversed(list(_BETWEEN_EVENTS.finditer(text, start))[-_MAX_CUTS:]):
                events = self._try(text[: match.start() + 1])
                if events is not None:
                    return events, match.end() - 1
            if start == 0:
                break
        return None

    def _try(self, text: bytes) -> list[Event] | None:
        try:
            return _decode_events(b"[" + text + b"]")
        except msgspec.ValidationError as error:
            raise self._error(str(error)) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None

    def _last(self, text: bytes) -> list[Event]:
        """The events to the list's end; sets the header from what stands before and after the list."""
        position = len(text)
        for _ in range(_MAX_LIST_ENDS):
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
