"""A recording of torch.profiler as pieces that can be left out: its events, and what stands around
them. Text that is not JSON is kept as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from torchscale.features.trace.readers.kineto.stream import EVENTS_KEY, MAX_HEADER_BYTES

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"

_BRACKET = re.compile(
    rb'(?:[^"\[\]{}]+|"[^"\\]*(?:\\.[^"\\]*){0,64}"){0,256}([\[\]{}])?', re.DOTALL
)
"""Text up to the next bracket outside strings, and the bracket, if both come soon: each repetition
takes memory, and a hostile string has millions of escapes."""
_QUOTE, _BACKSLASH = b'"\\'
_OPENING = b"[{"
_MAX_DEPTH = 50
"""Brackets within brackets of an event that is changed field by field; events have ten."""
_EVENTS = "traceEvents"


@dataclass(frozen=True)
class Pieces:
    """A recording in pieces.

    Attributes:
        before: The text up to the event list, with its opening bracket.
        events: Texts of events, without the commas between them.
        after: The list's closing bracket and what follows; empty where the text ends before.
    """

    before: bytes
    events: tuple[bytes, ...]
    after: bytes

    def text(self) -> bytes:
        """The recording."""
        return b"%b\n%b\n%b" % (self.before, b",\n".join(self.events), self.after)

    def with_events(self, events: Sequence[bytes]) -> Pieces:
        """The same with other events."""
        return replace(self, events=tuple(events))

    def with_header(self, header: dict[str, Json]) -> Pieces:
        """The same with other keys around the event list."""
        opening = written({**header, _EVENTS: []})[: -len(b"]}")]
        return replace(self, before=opening, after=b"]}" if self.after else b"")

    def header(self) -> dict[str, Json] | None:
        """The keys around the event list; ``None`` where there are none, or they cannot be read."""
        header = parsed(self.before + (self.after or b"]}"))
        if not isinstance(header, dict) or header.pop(_EVENTS, None) != []:
            return None
        return header


def split(text: bytes) -> Pieces | None:
    """The pieces of a recording; ``None`` where no event list begins in it."""
    key = EVENTS_KEY.search(text, 0, MAX_HEADER_BYTES)
    if key is not None:
        start = key.end()
    elif text.lstrip()[:1] == b"[":
        start = text.index(b"[") + 1
    else:
        return None
    events, end = _events_from(text, start)
    return Pieces(text[:start], tuple(events), text[end:])


def _events_from(text: bytes, start: int) -> tuple[list[bytes], int]:
    """Texts of events, and where their list ends. Where a comma is missing, two events are
    one text."""
    events: list[bytes] = []
    depth, begin = 0, start
    for position, is_opening in _brackets(text, start):
        between = text[begin:position].rstrip() if depth == 0 and is_opening else b""
        if between.endswith(b","):  # null, say, where an event should be
            _add(events, between[:-1])
            begin += len(between) - 1
        depth += 1 if is_opening else -1
        if depth < 0:
            _add(events, text[begin:position])
            return events, position
        if depth == 0:
            _add(events, text[begin : position + 1])
            begin = position + 1
    _add(events, text[begin:])
    return events, len(text)


def _brackets(text: bytes, position: int = 0) -> Iterator[tuple[int, bool]]:
    """Place of each bracket outside strings, and whether it opens."""
    while position < len(text):
        match = _BRACKET.match(text, position)
        if match is None:
            return
        position = match.end()
        if match[1] is not None:
            yield position - 1, match[1] in _OPENING
        elif position < len(text) and text[position] == _QUOTE:
            position = _string_end(text, position + 1)


def _string_end(text: bytes, position: int) -> int:
    """Where the string ends whose first character is at ``position``."""
    while (quote := text.find(b'"', position)) >= 0:
        first = quote
        while first > position and text[first - 1] == _BACKSLASH:
            first -= 1
        if (quote - first) % 2 == 0:
            return quote + 1
        position = quote + 1
    return len(text)


def _add(events: list[bytes], text: bytes) -> None:
    text = text.strip()
    if events and text and not text.startswith(b","):
        events[-1] += text
        return
    event = text.removeprefix(b",").lstrip()
    if event:
        events.append(event)


def parsed(text: bytes) -> Json:
    """A value from JSON; ``None`` where it is none, or is deeper than events are."""
    if _depth(text) > _MAX_DEPTH:
        return None
    try:
        value: Json = json.loads(text.decode())
    except (ValueError, RecursionError):
        return None
    return value


def written(value: Json) -> bytes:
    """A value as JSON, in ASCII."""
    return json.dumps(value).encode()


def _depth(text: bytes) -> int:
    """How deep brackets stand in each other, if that may be too deep."""
    if text.count(b"{") + text.count(b"[") <= _MAX_DEPTH:
        return 0  # the fast path of nearly all events: none is too deep
    depth = deepest = 0
    for _, is_opening in _brackets(text):
        depth += 1 if is_opening else -1
        deepest = max(deepest, depth)
    return deepest
