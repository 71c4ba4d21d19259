"""Fields of another type than torch writes cost that field of that event, never the file."""

from __future__ import annotations

import io
import json
import math
from collections import Counter
from typing import Any

import pytest

from tests.features.trace.readers.builders import host, kernel, kineto, read_rank, step
from torchscale.errors import TraceError
from torchscale.features.trace.readers.kineto.forms import decode_events, decode_header
from torchscale.features.trace.span import RankTrace, SpanKind


def recorded(**changed: Any) -> list[dict[str, Any]]:
    """Three steps, each of a launch, a kernel, a copy and a collective; ``changed`` are arguments of
    the second copy."""
    found = []
    for number in range(3):
        origin = 1000.0 * number
        found.append(step(number, origin, 1000.0))
        found.append(host("cuda_runtime", "hipExtModuleLaunchKernel", origin, 5.0, correlation=1))
        found.append(kernel("gemm", origin + 100, 800.0, link=1))
        copy = kernel("CopyHostToDevice", origin + 910, 30.0, bytes=4096)
        if number == 1:
            copy["args"].update(changed)
        found.append({**copy, "cat": "gpu_memcpy"})
        collective: dict[str, Any] = {"Collective name": "allreduce", "In msg nelems": 10}
        found.append(
            kernel("ncclDevKernel_Generic(x)", origin + 950, 20.0, Seq=number, **collective)
        )
    return found


def read(events: list[dict[str, Any]], **header: Any) -> RankTrace:
    return read_rank(io.BytesIO(kineto(events, **header).encode()), "rank0.json")


def sizes(rank: RankTrace) -> list[int]:
    return list(rank.spans.size[rank.spans.of(SpanKind.COPY)])


@pytest.mark.parametrize("value", ["4096", " 4096", 4096.0])
def test_text_that_is_a_number_is_the_number(value: Any) -> None:
    rank = read(recorded(bytes=value))
    assert sizes(rank) == [4096, 4096, 4096]
    assert rank.notes == ()


@pytest.mark.parametrize("value", ["n/a", 1.5, [4096], {"value": 1}, True, "", "0x1000", None])
def test_anything_else_is_unknown_for_that_event_alone_and_said_once(value: Any) -> None:
    rank = read(recorded(bytes=value))
    assert sizes(rank) == [4096, -1, 4096]
    told = "rank0.json: of another type than torch writes, taken as unknown: args.bytes (1)"
    assert rank.notes == (() if value is None else (told,))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("correlation", "x"),
        ("External id", {}),
        ("device", "GPU 0"),
        ("stream", "seven"),
        ("In msg nelems", [1]),
        ("Process Group Name", 7),
        ("Process Group Ranks", 7),
        ("Src Rank", None),
        ("dtype", 5),
        ("Total Allocated", "much"),
    ],
)
def test_no_field_of_any_event_costs_the_file(name: str, value: Any) -> None:
    events = recorded()
    for event in events:
        event["args"][name] = value
    rank = read(events)
    assert len(rank.collectives) == 3
    assert int(rank.spans.of(SpanKind.COMPUTE).sum()) == 3


def test_every_number_may_be_text() -> None:
    plain = read(recorded())
    events = json.loads(json.dumps(recorded()), parse_int=str, parse_float=str)
    text = read(events)
    for column in ("start", "end", "kind", "link", "size"):
        assert getattr(text.spans, column).tolist() == getattr(plain.spans, column).tolist()
    assert text.collectives.sequence.tolist() == [0, 1, 2]
    assert text.steps.start.tolist() == plain.steps.start.tolist()


@pytest.mark.parametrize("field", ["ts", "dur"])
@pytest.mark.parametrize("value", ["soon", None, [], float("nan")])
def test_times_of_what_is_used_stay_strict(field: str, value: Any) -> None:
    for place in (0, 2, 4):  # a step, a kernel, a collective
        events = recorded()
        events[place][field] = value
        with pytest.raises(TraceError, match=r"the time of event '.*' is no number"):
            read(events)


def test_times_of_what_is_not_used_do_not_matter() -> None:
    events = [*recorded(), {**host("python_function", "f", 0.0, 1.0), "ts": "soon"}]
    assert len(read(events).collectives) == 3


def test_numbers_that_json_does_not_have_are_unknown() -> None:
    text = kineto(recorded(bytes=12345)).replace('"bytes": 12345', '"bytes": 1, "waves": NaN')
    text = text.replace('"grid": [', '"occupancy": -Infinity, "grid": [')
    rank = read_rank(io.BytesIO(text.encode()), "rank0.json")
    assert len(rank.collectives) == 3


def test_events_that_are_none_are_counted() -> None:
    unread = Counter[str]()
    events = decode_events(b'3, null, {"ph": "X", "name": {}, "args": "text"}', unread)
    assert events is not None
    assert len(events) == 3
    assert unread == {"event": 2, "name": 1, "args": 1}
    assert decode_events(b'{"ph": "X"', unread) is None
    assert unread == {"event": 2, "name": 1, "args": 1}


def test_a_time_that_is_none_is_not_a_number() -> None:
    events = decode_events(b'{"ph": "X", "ts": "1.5", "dur": {}}', Counter())
    assert events is not None
    assert (events[0].ts, math.isnan(events[0].dur)) == (1.5, True)


def test_headers_are_read_as_far_as_they_can_be() -> None:
    rank = read(
        recorded(), host_name=7, distributedInfo={"rank": "1", "world_size": "4", "backend": 3}
    )
    assert (rank.rank, rank.world_size, rank.backend, rank.host) == (1, 4, None, None)
    assert "host_name (1)" in rank.notes[0]
    assert read(recorded(), distributedInfo="none").world_size is None
    (note,) = read(recorded(), distributedInfo=None, host_name=7).notes
    assert note.endswith("taken as unknown: host_name (1)")


@pytest.mark.parametrize(
    "header",
    [
        {"distributedInfo": {"rank": "first"}},
        {"distributedInfo": {"world_size": [2]}},
        {"baseTimeNanoseconds": "then"},
    ],
)
def test_who_a_rank_is_and_when_stays_strict(header: dict[str, Any]) -> None:
    with pytest.raises(TraceError, match="expected a number"):
        read(recorded(), **header)
    with pytest.raises(ValueError, match="expected a number"):
        decode_header(json.dumps({**header, "traceEvents": []}).encode(), Counter())
