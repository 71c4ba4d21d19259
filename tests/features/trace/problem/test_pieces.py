"""Text of a recording becomes pieces that are the same text again, whatever is wrong in it."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.features.trace.readers.builders import kernel, kineto
from torchscale.features.trace.problem.pieces import Pieces, parsed, split

NAME = 'a "},{" \\ ] é'
EVENTS = [kernel(NAME, 10.0 * number, 5.0, link=number) for number in range(3)]


def pieces_of(text: str | bytes) -> Pieces:
    pieces = split(text if isinstance(text, bytes) else text.encode())
    assert pieces is not None
    return pieces


def test_events_and_header() -> None:
    pieces = pieces_of(kineto(EVENTS, rank=3, world_size=8))
    assert [parsed(event) for event in pieces.events] == EVENTS
    header = pieces.header()
    assert header is not None
    assert header["distributedInfo"] == {"backend": "nccl", "rank": 3, "world_size": 8}
    assert header["traceName"] == "x.json"
    assert json.loads(pieces.text()) == json.loads(kineto(EVENTS, rank=3, world_size=8))


def test_another_header_and_fewer_events() -> None:
    pieces = pieces_of(kineto(EVENTS)).with_header({"a": [1]}).with_events([b"{}", b"null"])
    assert json.loads(pieces.text()) == {"a": [1], "traceEvents": [{}, None]}
    assert json.loads(pieces.with_header({}).text()) == {"traceEvents": [{}, None]}


def test_a_list_without_a_header() -> None:
    pieces = pieces_of(json.dumps(EVENTS))
    assert len(pieces.events) == 3
    assert pieces.header() is None
    assert json.loads(pieces.text()) == EVENTS


def test_a_text_that_is_cut_off_stays_so() -> None:
    whole = kineto(EVENTS)
    pieces = pieces_of(whole[: whole.index('"dur"', whole.index('"dur"') + 1)])
    assert len(pieces.events) == 2
    assert pieces.after == b""
    assert pieces.with_header({}).after == b""
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(pieces.text())


@pytest.mark.parametrize(
    ("events", "texts"),
    [
        ("null, {}, 3", [b"null", b"{}", b"3"]),
        ("{}, null, null, {}", [b"{}", b"null, null", b"{}"]),
        ("{} {}", [b"{}{}"]),
        ('{"a": 1 "b": 2}, {}', [b'{"a": 1 "b": 2}', b"{}"]),
        ("{},", [b"{}"]),
        ("", []),
    ],
)
def test_what_is_no_event_is_kept(events: str, texts: list[bytes]) -> None:
    assert list(pieces_of(f'{{"traceEvents": [{events}]}}').events) == texts


@pytest.mark.parametrize("escapes", [0, 63, 64, 65, 1000])
@pytest.mark.parametrize("text", ['{"}', "\\", "\n"])
def test_brackets_in_strings_with_many_escapes_are_none(escapes: int, text: str) -> None:
    event = {"a": text + '"' * escapes + text, "b": 1}
    pieces = pieces_of(json.dumps([event, event]))
    assert [parsed(one) for one in pieces.events] == [event, event]


@pytest.mark.parametrize("text", [b"", b"{}", b"<html>", b'{"a": ['])
def test_no_list_of_events(text: bytes) -> None:
    assert split(text) is None


@pytest.mark.parametrize(
    "text",
    [
        b'{"a":' * 5000,
        b"[" * 100_000,
        b'"\\"' * 200_000,
        b'"a",' * 200_000,
        b"\\" * 500_000,
        b'"' + b"\\a" * 999_999,
    ],
    ids=["objects", "lists", "escapes", "strings", "backslashes", "string"],
)
def test_hostile_text_takes_no_time(text: bytes) -> None:
    began = time.process_time()
    pieces = pieces_of(b"[" + text)
    assert b"".join(pieces.text().split()).removeprefix(b"[") in b"".join(text.split()) + b","
    for event in pieces.events:
        parsed(event)
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    "text", [b"[" * 60 + b"]" * 60, b"\xff", b"{", b"1" * 5000, b'{"a":' * 99_999], ids=repr
)
def test_what_cannot_be_changed_by_fields_is_no_value(text: bytes) -> None:
    assert parsed(text) is None


@given(st.binary(max_size=200))
def test_any_text_is_kept_but_for_spaces_and_commas(text: bytes) -> None:
    pieces = pieces_of(b"[" + text)
    left = pieces.text().translate(None, b" \n\t\r\v\f,")
    assert left == (b"[" + text).translate(None, b" \n\t\r\v\f,")
