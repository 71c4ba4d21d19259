"""The smallest pieces that still fail, by delta debugging (Zeller and Hildebrandt, Simplifying and
Isolating Failure-Inducing Input, 2002): leave out halves, quarters … as long as it fails."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import TypeVar

from torchscale.features.trace.problem.pieces import Json, Pieces, parsed, written

T = TypeVar("T")

_LONGEST_FRAGMENT = 4096
"""Bytes of text that is no JSON, around the damage, that are kept: an event has less."""
_MOST_TOKENS = 1 << 20
"""Bytes of text that is cut into words."""
_MOST_KINDS = 100
"""Recordings have about twenty kinds of events."""
_TOKEN = re.compile(rb"\w+|\s+|[^\w\s]")
_SIMPLE_NUMBERS = (0, 1)


class SpentError(Exception):
    """There is no time for another try."""


class PieceTrials:
    """Tries of pieces, bounded in time and number; keeps the last ones that failed.

    Attributes:
        best: What failed last, and is the smallest so far.
        tries: How often it was tried.
    """

    def __init__(
        self,
        best: Pieces,
        fails: Callable[[bytes], bool],
        *,
        seconds: float,
        tries: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.best, self.tries = best, 0
        self._fails, self._clock = fails, clock
        self._end, self._most = clock() + seconds, tries

    def fails(self, candidate: Pieces) -> bool:
        """Whether it fails too; then it is the best.

        Raises:
            SpentError: there is no time for another try.
        """
        found = self.would_fail(candidate)
        if found:
            self.best = candidate
        return found

    def would_fail(self, candidate: Pieces) -> bool:
        """Whether it fails too.

        Raises:
            SpentError: there is no time for another try.
        """
        if self.tries >= self._most or self._clock() >= self._end:
            raise SpentError
        self.tries += 1
        return self._fails(candidate.text())


def smallest(items: Sequence[T], fails: Callable[[list[T]], bool]) -> list[T]:
    """Items of which none can be left out, so that it still fails."""
    kept = list(items)
    if not kept or fails([]):
        return []
    length = len(kept)
    while True:
        length = max(1, length // 2)
        before = len(kept)
        start = 0
        while start < len(kept):
            fewer = kept[:start] + kept[start + length :]
            if fewer and fails(fewer):
                kept = fewer
            else:
                start += length
        if length == 1 and len(kept) == before:
            return kept


class Reduced(Enum):
    """What was reached."""

    SMALLEST = "smallest"
    """Nothing more can be left out."""
    KINDS = "kinds"
    """It fails by what is missing in it: a recording without events fails too, and says nothing. One
    event of each kind is left."""
    UNFINISHED = "unfinished"
    """Time ran out."""


def reduce_pieces(search: PieceTrials) -> Reduced:
    """Reduce ``search.best``: events, then fields of events and keys around them. Where time runs out,
    what was reached stands."""
    try:
        return _reduce(search)
    except SpentError:
        return Reduced.UNFINISHED


def _reduce(search: PieceTrials) -> Reduced:
    if _keep_fragments(search):
        _reduce_header(search)
        return Reduced.SMALLEST
    kinds = search.best.with_events(_one_of_each_kind(search.best.events))
    if any(map(search.would_fail, _without_content(search.best))) and search.fails(kinds):
        _reduce_header(search)
        return Reduced.KINDS
    smallest(search.best.events, lambda kept: search.fails(search.best.with_events(kept)))
    _reduce_header(search)
    _reduce_events(search)
    return Reduced.SMALLEST


def _without_content(pieces: Pieces) -> tuple[Pieces, Pieces]:
    """Recordings of the same form without keys and without events, and with one that says nothing: a
    list without any is no recording."""
    empty = Pieces(b"[", (), pieces.after and b"]")
    if pieces.header() is not None:
        empty = pieces.with_events(()).with_header({})
    return empty, empty.with_events((b'{"ph": "M"}',))


def _one_of_each_kind(events: Sequence[bytes]) -> list[bytes]:
    """The first event of each phase and category."""
    kinds: dict[str, bytes] = {}
    for event in events:
        value = parsed(event)
        if isinstance(value, dict) and len(kinds) < _MOST_KINDS:
            kinds.setdefault(f"{value.get('ph')} {value.get('cat')}", event)
    return list(kinds.values())


def _keep_fragments(search: PieceTrials) -> bool:
    """Leave out all that is sound JSON, where text that is none fails by itself. That text is kept
    whole, so that one sees how it is damaged, unless it is long."""
    fragments = [event for event in search.best.events if parsed(event) is None]
    if not fragments or not search.fails(search.best.with_events(fragments)):
        return False
    if len(fragments) > 1:
        smallest(fragments, lambda kept: search.fails(search.best.with_events(kept)))
    for place in range(len(search.best.events)):
        _shorten(search, place)
    return True


def _shorten(search: PieceTrials, place: int) -> None:
    """Keep both ends of a long fragment, one of them, or what of it still fails."""
    text = search.best.events[place]
    if len(text) <= _LONGEST_FRAGMENT:
        return
    if any(search.fails(_with_event(search.best, place, shorter)) for shorter in _ends(text)):
        return

    def fails(kept: list[bytes]) -> bool:
        return search.fails(_with_event(search.best, place, b"".join(kept)))

    starts = range(0, len(text), _LONGEST_FRAGMENT)
    blocks: list[bytes] = [text[at : at + _LONGEST_FRAGMENT] for at in starts]
    kept = smallest(blocks, fails)
    text = b"".join(kept)
    if len(text) <= _MOST_TOKENS:
        smallest(_TOKEN.findall(text), fails)


def _ends(text: bytes) -> tuple[bytes, ...]:
    """Both ends of a long text, and each."""
    half = _LONGEST_FRAGMENT // 2
    return text[:half] + text[-half:], text[:half], text[-half:]


def _shorten_around(search: PieceTrials) -> None:
    """Keep the ends of long text around the events, which is no JSON."""
    before, after = search.best.before, search.best.after
    if len(before) > _LONGEST_FRAGMENT:
        any(search.fails(replace(search.best, before=text)) for text in _ends(before))
    if len(after) > _LONGEST_FRAGMENT:
        any(search.fails(replace(search.best, after=text)) for text in (b"]}", *_ends(after)))


def _reduce_header(search: PieceTrials) -> None:
    header = search.best.header()

    def fails(value: Json) -> bool:
        return isinstance(value, dict) and search.fails(search.best.with_header(value))

    if header is None:
        _shorten_around(search)
    else:
        _shrink(header, fails)


def _reduce_events(search: PieceTrials) -> None:
    for place, event in enumerate(search.best.events):
        value = parsed(event)

        def fails(new: Json, place: int = place) -> bool:
            return search.fails(_with_event(search.best, place, written(new)))

        if value is not None:
            _shrink(value, fails)


def _with_event(pieces: Pieces, place: int, event: bytes) -> Pieces:
    return pieces.with_events([*pieces.events[:place], event, *pieces.events[place + 1 :]])


def _shrink(value: Json, fails: Callable[[Json], bool]) -> Json:
    """A value with as few parts as it takes to fail, and simple numbers. Texts stay."""
    if isinstance(value, dict):
        return _shrink_fields(value, fails)
    if isinstance(value, list):
        return _shrink_items(value, fails)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    for simple in _SIMPLE_NUMBERS:
        if value == simple or fails(simple):
            return simple
    return value


def _shrink_fields(value: dict[str, Json], fails: Callable[[Json], bool]) -> Json:
    fields = dict(smallest(list(value.items()), lambda kept: fails(dict(kept))))
    for key in list(fields):

        def fails_with(new: Json, key: str = key) -> bool:
            return fails({**fields, key: new})

        fields[key] = _shrink(fields[key], fails_with)
    return fields


def _shrink_items(value: list[Json], fails: Callable[[Json], bool]) -> Json:
    items = smallest(value, lambda kept: fails(list(kept)))
    for place, item in enumerate(items):

        def fails_with(new: Json, place: int = place) -> bool:
            return fails([*items[:place], new, *items[place + 1 :]])

        items[place] = _shrink(item, fails_with)
    return items
