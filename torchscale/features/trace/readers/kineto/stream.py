"""The file: pieces of the event list decoded one after the other, and the header around the
list."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

from torchscale.errors import TraceError
from torchscale.features.trace.readers.kineto.forms import (
    Event,
    Header,
    decode_events,
    decode_header,
)

EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
"""What stands before the first event."""
_PIECE_BYTES = 1 << 20
MAX_HEADER_BYTES = 16 << 20
"""The header holds device properties and process groups, a few KiB, of thousands of groups some
MiB; a file without events is refused before all of it is in memory."""
_MAX_EVENT_BYTES = 64 << 20
"""The largest events carry call stacks and shapes, some KiB; beyond this the text is not JSON, and
is not collected."""
_BETWEEN_EVENTS = re.compile(rb"\}\s*,\s*\{")
_CUT_WINDOW = 1 << 14
"""Where the last end of an event is looked for first: nearly always within the last 16 KiB of a
piece."""
_MAX_CUTS, _MAX_LIST_ENDS = 4, 256
"""How many places are tried before the text is scanned from its start, or taken for broken; each
costs a decoding of the piece."""
_LIST_END_BYTES = 1 << 28
"""Decoded at most to find the list's end: two hundred pieces."""
_MAX_EVENTS = 25_000_000
"""Some five gigabytes of a trace, which take 3.5 GB of memory; the longest recordings have a tenth
of that."""
_MAX_DEPTH = 1000
"""Objects within objects; deeper ones cannot be decoded, and need not be read to their end."""
_TOKEN = re.compile(rb'["{}]')


def header_before(text: bytes) -> Header | None:
    """What stands before the first event of a trace that begins like this; ``None`` where it is no
    trace, or what stands there cannot be read."""
    key = EVENTS_KEY.search(text)
    if key is None:
        return None
    try:
        before = text[: key.start()].removeprefix(codecs.BOM_UTF8)
        return decode_header(before + b'"traceEvents": []}', Counter())
    except (ValueError, RecursionError):
        return None


class _Scanned(NamedTuple):
    """How far a text was read for ends of events: where, how deep in objects, whether in a string,
    and the last place between two events."""

    position: int = 0
    depth: int = 0
    in_string: bool = False
    between: tuple[int, int] | None = None


def _string_end(text: bytes, position: int) -> tuple[int, bool]:
    """Where the string that ``position`` lies in ends, and whether it does; else how far it was
    read."""
    while (quote := text.find(b'"', position)) >= 0:
        before = text[position:quote]
        if (len(before) - len(before.rstrip(b"\\"))) % 2 == 0:
            return quote + 1, True
        position = quote + 1
    return position + len(text[position:].rstrip(b"\\")), False


class EventStream:
    """The event list in pieces, and the header, which may stand before and after the list.

    A piece ends between two events. The text alone does not show where that is (a name may contain
    ``},{``), but only a true end of an event leaves a list that decodes. :attr:`unread` counts
    fields of another type than torch writes, by their names.
    """

    def __init__(self, file: BinaryIO, source: str) -> None:
        self._file, self._source = file, source
        self._before = b""
        self._offset = 0
        self._scanned = _Scanned()
        self.header = Header()
        self.unread = Counter[str]()

    def events(self) -> Iterator[list[Event]]:
        """The events, some thousand at a time; :attr:`header` is set once all are read.

        Raises:
            TraceError: the text is not a trace, is cut off, or an event has another form than
                torch.profiler writes.
        """
        rest = self._open()
        count = 0
        while piece := self._file.read(_PIECE_BYTES):
            rest += piece
            cut = self._cut(rest)
            if cut is None:
                if len(rest) > _MAX_EVENT_BYTES:
                    raise self._error("an event of over 64 MiB, or text that is not JSON")
                continue
            events, used = cut
            yield events
            count += len(events)
            if count > _MAX_EVENTS:
                raise self._error(f"more than {_MAX_EVENTS:,} events")
            self._offset += used
            rest = rest[used:]
            self._scanned = _Scanned()
        yield self._last(rest)

    def _open(self) -> bytes:
        """Read up to the first event; returns what follows the opening bracket."""
        text = self._file.read(_PIECE_BYTES).removeprefix(codecs.BOM_UTF8)
        if text.lstrip()[:1] == b"[":  # the bare list that Chrome also accepts
            return text.lstrip()[1:]
        while (key := EVENTS_KEY.search(text)) is None:
            more = self._file.read(_PIECE_BYTES)
            if not more or len(text) > MAX_HEADER_BYTES:
                raise TraceError(
                    f"{self._source}: no traceEvents in it; not a trace of torch.profiler",
                    hint="name .json, .json.gz or .tar.gz files that torch.profiler exported, or "
                    "nsys files",
                )
            text += more
        self._before = text[: key.start()]
        self._offset = key.end()
        return text[key.end() :]

    def _cut(self, text: bytes) -> tuple[list[Event], int] | None:
        """The events up to the last end of one that ``text`` holds, and how many bytes they and
        their comma take."""
        start = max(0, len(text) - _CUT_WINDOW)
        # Where a text was scanned before, its end lies in a long string, and these are no ends of
        # events either.
        likely = []
        if not self._scanned.position:
            likely = list(_BETWEEN_EVENTS.finditer(text, start))[-_MAX_CUTS:]
        for match in reversed(likely):
            events = self._try(text[: match.start() + 1])
            if events is not None:
                return events, match.end() - 1
        between = self._last_between(text)
        events = None
        if between is not None:
            events = self._try(text[: between[0] + 1])
        if between is None or events is None:
            return None
        return events, between[1] - 1

    def _last_between(self, text: bytes) -> tuple[int, int] | None:
        """Start and end of the last place between two events, found by reading the text from where
        the last call ended: what stands in strings does not count."""
        at = self._scanned
        while at.position < len(text):
            if at.in_string:
                end, closed = _string_end(text, at.position)
                at = at._replace(position=end, in_string=not closed)
                if not closed:
                    break  # it goes on in the next piece
                continue
            token = _TOKEN.search(text, at.position)
            if token is None:
                at = at._replace(position=len(text))
                break
            match token[0]:
                case b'"':
                    at = at._replace(in_string=True)
                case b"{":
                    at = at._replace(depth=at.depth + 1)
                    if at.depth > _MAX_DEPTH:
                        raise self._error(f"an event of over {_MAX_DEPTH} objects in each other")
                case _:
                    between = _BETWEEN_EVENTS.match(text, token.start()) if at.depth == 1 else None
                    at = at._replace(
                        depth=at.depth - 1, between=between.span() if between else at.between
                    )
            at = at._replace(position=token.end())
        self._scanned = at
        return at.between

    def _try(self, text: bytes) -> list[Event] | None:
        return decode_events(text, self.unread)

    def _last(self, text: bytes) -> list[Event]:
        """The events to the list's end; sets the header from what stands before and after the
        list."""
        position, budget = len(text), _LIST_END_BYTES
        for _ in range(_MAX_LIST_ENDS):
            position = text.rfind(b"]", 0, position)
            budget -= position
            if position < 0 or budget < 0:
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
            text = self._before + b'"traceEvents": []' + after
            self.header = decode_header(text, self.unread)
        except (ValueError, RecursionError) as error:
            raise self._error(f"the text around traceEvents cannot be read: {error}") from error

    def _error(self, what: str) -> TraceError:
        return TraceError(
            f"{self._source}: {what} (after byte {self._offset:,})",
            hint="record it again, or leave this file out",
        )
