"""Nothing of the user's text is left but what it takes to fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchscale.features.trace.problem.neutral import NotNeutralError, categories, mask, neutralize
from torchscale.features.trace.problem.pieces import Pieces, split
from torchscale.features.trace.problem.reduction import PieceTrials, SpentError


def pieces_of(text: str | bytes) -> Pieces:
    pieces = split(text if isinstance(text, bytes) else text.encode())
    assert pieces is not None
    return pieces


def neutral(text: str | bytes, fails: Callable[[bytes], bool]) -> bytes:
    search = PieceTrials(pieces_of(text), fails, seconds=60, tries=5000)
    neutralize(search)
    assert fails(search.best.text())
    return search.best.text()


EVENT = {
    "ph": "X",
    "cat": "kernel",
    "name": "acme_attention<float>",
    "args": {"path": "/home/bob/acme.py(3): train", "acme-key": ["acme_attention<float>"]},
}
RECORDING = json.dumps({"host_name": "gpu7.acme.com", "traceEvents": [EVENT]})


def test_all_text_gets_neutral_names_and_equal_text_equal_ones() -> None:
    content = json.loads(neutral(RECORDING, lambda _: True))
    (event,) = content["traceEvents"]
    assert (event["ph"], event["cat"]) == ("X", "kernel")
    assert list(content) == ["host_name", "traceEvents"]
    assert "acme" not in json.dumps(content)
    (names,) = [value for value in event["args"].values() if isinstance(value, list)]
    assert names == [event["name"]]


def test_of_a_name_that_it_takes_to_fail_only_that_part_is_left() -> None:
    def fails(text: bytes) -> bool:
        return "att" in json.loads(text)["traceEvents"][0]["name"]

    content = json.loads(neutral(RECORDING, fails))
    assert content["traceEvents"][0]["name"] == "att"
    assert "acme" not in json.dumps(content)


def test_a_text_that_has_to_be_long_is_of_one_letter() -> None:
    def fails(text: bytes) -> bool:
        return len(json.loads(text)["host_name"]) > 9

    assert json.loads(neutral(RECORDING, fails))["host_name"].strip("x1.") == ""


def test_a_number_as_text_stays_one() -> None:
    recording = json.dumps({"traceEvents": [{"args": {"bytes": "18816"}}]})
    assert json.loads(neutral(recording, lambda _: True)) == {
        "traceEvents": [{"args": {"bytes": "11111"}}]
    }


def test_two_keys_of_one_name_stay_two() -> None:
    recording = '{"traceEvents": [{"rank": "bob", "rank": "eve"}]}'
    text = neutral(recording, lambda text: text.count(b'"rank"') == 2)
    assert b'{"rank": "xxx", "rank": "xxx"}' in text


def test_categories_are_named_only_if_profilers_write_such() -> None:
    events = [{"cat": "mtia_ccp_events"}, {"cat": "/home/bob"}, {"cat": 3}, {"name": "bob"}]
    assert categories(pieces_of(json.dumps(events))) == {"mtia_ccp_events"}


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        (b'{"name": "bob", "ts": 1.5', b'{"name": "xxx", "ts": 1.1'),
        (b'{"ts": 1.5e3, "ok": true}', b'{"ts": 1.5e3, "xx": true}'),
        (b'{"ph": "X", "cat": "kernel" "bob', b'{"ph": "X", "cat": "kernel" "xxx'),
        (b'bob 10.20.30.40 bob7', b"xxx 11.11.11.11 xxx1"),
        (b'"a\\n\\u00e9\\ud800\\"b"', b'"x\\n\\u0078\\ud800\\"x"'),
        ("\"é\" ß 漢".encode(), b'"x" x x'),
        (b'"bob\xff\xfe"', b'"xxx\xff\xfe"'),
        (b'"C:\\\\q\\qob"', b'"x:\\\\x\\xxx"'),
        (b'""bob": 12, "x"', b'""xxx": 11, "x"'),
    ],
)  # fmt: skip
def test_text_that_is_no_json_is_masked(text: bytes, masked: bytes) -> None:
    assert mask(text) == masked


@given(st.text('qΩß漢"\\{}[],: \n', max_size=80))
def test_no_letter_of_any_text_is_left(text: str) -> None:
    assert not set(mask(text.encode()).decode()) & set("qΩß漢")


def test_damaged_text_is_masked_and_sound_text_renamed() -> None:
    text = neutral('{"host_name": "bob", "traceEvents": [{"name": "bob}', lambda _: True)
    assert b"bob" not in text
    assert b'"name": "xxx}' in text


def test_what_fails_by_private_text_alone_is_not_shown() -> None:
    damaged = '{"traceEvents": [{"name": "bob}'
    search = PieceTrials(pieces_of(damaged), lambda text: b"bob" in text, seconds=60, tries=99)
    with pytest.raises(NotNeutralError):
        neutralize(search)


def test_without_time_nothing_is_shown() -> None:
    search = PieceTrials(pieces_of(RECORDING), lambda _: True, seconds=60, tries=1)
    with pytest.raises(SpentError):
        neutralize(search)


def test_a_recording_without_text_stays(tmp_path: Any) -> None:
    assert json.loads(neutral('{"traceEvents": [{"ts": 3}]}', lambda _: True)) == {
        "traceEvents": [{"ts": 3}]
    }


def test_very_much_text_that_is_no_json_is_not_shown() -> None:
    text = '{"traceEvents": [{"name": "' + "bob " * (2 << 20)
    search = PieceTrials(pieces_of(text), lambda _: True, seconds=60, tries=99)
    with pytest.raises(NotNeutralError):
        neutralize(search)
