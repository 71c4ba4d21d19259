"""What fails is made small: on failures whose smallest part is known."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchscale.features.trace.problem.pieces import split
from torchscale.features.trace.problem.reduction import (
    PieceTrials,
    Reduced,
    reduce_pieces,
    smallest,
)


def search_of(
    content: dict[str, Any], fails: Callable[[dict[str, Any]], bool], **limits: Any
) -> PieceTrials:
    pieces = split(json.dumps(content).encode())
    assert pieces is not None
    limits = {"seconds": 60.0, "tries": 5000, **limits}
    return PieceTrials(pieces, lambda text: fails(json.loads(text)), **limits)


def content_of(search: PieceTrials) -> Any:
    return json.loads(search.best.text())


@given(st.sets(st.integers(0, 30), max_size=4), st.integers(0, 31))
def test_what_is_needed_is_left_and_nothing_else(needed: set[int], count: int) -> None:
    needed = {number for number in needed if number < count}
    assert set(smallest(range(count), lambda kept: needed <= set(kept))) == needed


def test_one_of_many_takes_few_tries() -> None:
    tries = []

    def fails(kept: list[int]) -> bool:
        tries.append(len(kept))
        return 77_777 in kept

    assert smallest(range(100_000), fails) == [77_777]
    assert len(tries) < 60


def test_an_event_a_field_and_a_key_are_left() -> None:
    events = [{"name": f"n{number}", "args": {"a": number, "b": [number]}} for number in range(50)]

    def fails(content: dict[str, Any]) -> bool:
        found = any(
            event.get("args", {}).get("b") == [17] or event.get("args", {}).get("b") == [0, 17]
            for event in content["traceEvents"]
        )
        return found and content.get("info", {}).get("rank", 0) > 5

    search = search_of({"host": "h", "info": {"rank": 7, "size": 9}, "traceEvents": events}, fails)
    assert reduce_pieces(search) is Reduced.SMALLEST
    assert content_of(search) == {"info": {"rank": 7}, "traceEvents": [{"args": {"b": [17]}}]}


def test_numbers_become_simple_where_it_still_fails() -> None:
    def fails(content: dict[str, Any]) -> bool:
        return any(event.get("ts", 0) >= 1 and "pid" in event for event in content["traceEvents"])

    search = search_of({"traceEvents": [{"ts": 123.5, "pid": 4711, "tid": 3}]}, fails)
    assert reduce_pieces(search) is Reduced.SMALLEST
    assert content_of(search) == {"traceEvents": [{"ts": 1, "pid": 0}]}


def test_what_fails_without_events_keeps_one_of_each_kind() -> None:
    events = [
        {"ph": ph, "cat": cat, "name": f"{cat}{number}"}
        for number in range(9)
        for ph, cat in (("X", "Kernel"), ("X", "Operator"), ("i", "Operator"))
    ]
    search = search_of({"host": "h", "traceEvents": events}, lambda content: True)
    assert reduce_pieces(search) is Reduced.KINDS
    assert content_of(search) == {"traceEvents": events[:3]}


def test_the_header_alone_may_fail() -> None:
    search = search_of(
        {"rank": "x", "host": "h", "traceEvents": [{}] * 9}, lambda content: "rank" in content
    )
    assert reduce_pieces(search) is Reduced.SMALLEST
    assert content_of(search) == {"rank": "x", "traceEvents": []}


@pytest.mark.parametrize("limits", [{"tries": 7}, {"seconds": 6.5}])
def test_without_time_for_more_what_was_reached_stands(limits: dict[str, Any]) -> None:
    now = iter(range(10_000))
    search = search_of(
        {"traceEvents": [{"n": number} for number in range(1000)]},
        lambda content: {"n": 500} in content["traceEvents"],
        clock=lambda: float(next(now)),
        **{"seconds": 9999.0, **limits},
    )
    assert reduce_pieces(search) is Reduced.UNFINISHED
    assert 1 < len(search.best.events) < 1000
    assert {"n": 500} in content_of(search)["traceEvents"]
    assert search.tries <= 7


def test_damaged_text_is_left_as_it_is() -> None:
    damaged = b'{"name": "a" "ts": 1}'
    pieces = split(b'{"a": 1, "traceEvents": [{"b": 1}, ' + damaged + b', {"c": 2}]}')
    assert pieces is not None
    search = PieceTrials(pieces, lambda text: b'" "' in text, seconds=60, tries=100)
    assert reduce_pieces(search) is Reduced.SMALLEST
    assert search.best.events == (damaged,)


def test_of_much_damaged_text_both_ends_are_left() -> None:
    damaged = b'{"name": "begin ' + b"x y " * 100_000 + b" end}"
    pieces = split(b'{"traceEvents": [{"b": 1}, ' + damaged)
    assert pieces is not None
    search = PieceTrials(pieces, lambda text: b"end" in text, seconds=60, tries=100)
    assert reduce_pieces(search) is Reduced.SMALLEST
    (left,) = search.best.events
    assert left.startswith(b'{"name": "begin')
    assert left.endswith(b"end}")
    assert len(left) <= 4096


def test_long_text_after_a_list_that_ends_too_early_is_shortened() -> None:
    rest = b', {"name": "bob"}' * 10_000
    pieces = split(b'{"a": 1, "traceEvents": [{"b": 1}]}' + rest + b"]}")
    assert pieces is not None
    assert pieces.header() is None
    search = PieceTrials(pieces, lambda text: b"}, {" in text, seconds=60, tries=100)
    assert reduce_pieces(search) is Reduced.SMALLEST
    assert search.best.events == ()
    assert len(search.best.text()) < 4200


@pytest.mark.parametrize("needed", [b"[", b"ph"])
def test_a_list_that_fails_without_events_keeps_one_of_each_kind(needed: bytes) -> None:
    pieces = split(b'[{"ph": "X"}, {"ph": "X"}, {"ph": "X", "cat": "x"}]')
    assert pieces is not None
    search = PieceTrials(pieces, lambda text: needed in text, seconds=60, tries=100)
    assert reduce_pieces(search) is Reduced.KINDS
    assert search.best.events == (b'{"ph": "X"}', b'{"ph": "X", "cat": "x"}')


def test_what_long_damaged_text_needs_in_its_middle_is_found() -> None:
    text = b'{"name": "' + b"word " * 50_000 + b"needed " + b"word " * 50_000 + b'"'
    pieces = split(b'{"traceEvents": [' + text)
    assert pieces is not None
    search = PieceTrials(pieces, lambda text: b"needed" in text, seconds=60, tries=1000)
    assert reduce_pieces(search) is Reduced.SMALLEST
    assert search.best.events == (b"needed",)
