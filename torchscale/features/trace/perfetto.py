"""A recording as a trace for Perfetto (ui.perfetto.dev): all ranks on one page, with the findings
marked."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator

import numpy as np

from torchscale.features.trace.span import RankTrace, SpanKind, Trace
from torchscale.schema.profiles.analysis import ProfileAnalysis

_MAX_EVENTS = 300_000
"""Perfetto in a browser becomes slow with more events; the longest spans are kept."""
_KINDS = {
    SpanKind.COMPUTE: "compute",
    SpanKind.COPY: "copy",
    SpanKind.OPERATOR: "operator",
    SpanKind.LAUNCH: "launch",
    SpanKind.HOST_SYNC: "host sync",
    SpanKind.INPUT: "data wait",
    SpanKind.READBACK: "readback",
    SpanKind.PAUSE: "garbage collection",
}


def perfetto_json(trace: Trace, analysis: ProfileAnalysis) -> bytes:
    """Chrome trace JSON, compressed; equal input gives equal bytes."""
    begins = [
        part.start.min()
        for rank in trace.ranks
        for part in (rank.spans, rank.collectives)
        if len(part)
    ]
    origin = int(min(begins, default=0))
    share = _MAX_EVENTS // len(trace.ranks)
    events: list[dict[str, object]] = []
    for rank in trace.ranks:
        events += _rank_events(rank, origin, share)
    events += _finding_events(analysis)
    content = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "sync_stall_percent": analysis.sync_stall_percent,
            "recorder": analysis.recorder,
        },
    }
    return gzip.compress(
        json.dumps(content, separators=(",", ":")).encode(), compresslevel=6, mtime=0
    )


def _rank_events(rank: RankTrace, origin: int, share: int) -> Iterator[dict[str, object]]:
    number = rank.rank
    yield _name("process_name", number, 0, f"rank {number}")
    yield _name("process_sort_index", number, 0, number)
    spans = rank.spans
    order = np.argsort(spans.start - spans.end, kind="stable")[:share]
    for index in np.sort(order):
        kind = SpanKind(int(spans.kind[index]))
        lane = int(spans.lane[index])
        if kind is SpanKind.INPUT:
            lane = -1
        yield _span(
            (number, lane),
            rank.names[int(spans.name[index])][:160],
            _KINDS[kind],
            int(spans.start[index]) - origin,
            int(spans.end[index] - spans.start[index]),
        )
    for index in range(len(rank.steps)):
        start, length = (
            int(rank.steps.start[index]),
            int(rank.steps.end[index] - rank.steps.start[index]),
        )
        yield _span(
            (number, -2), f"step {int(rank.steps.number[index])}", "step", start - origin, length
        )
    collectives = rank.collectives
    for index in range(min(len(collectives), share)):
        start, length = (
            int(collectives.start[index]),
            int(collectives.end[index] - collectives.start[index]),
        )
        name = collectives.ops[int(collectives.op[index])]
        # Collectives overlap one another, which spans of one lane may not, so each is a pair of
        # async events.
        identifier = f"{number}.{index}"
        for phase, time in (("b", start), ("e", start + length)):
            yield {
                "ph": phase,
                "cat": "communication",
                "id": identifier,
                "pid": number,
                "tid": -3,
                "name": name,
                "ts": (time - origin) / 1e3,
            }


def _finding_events(analysis: ProfileAnalysis) -> Iterator[dict[str, object]]:
    for number, finding in enumerate(analysis.findings):
        scope, rank = "p", finding.rank
        if rank is None:
            scope, rank = "g", analysis.per_rank[0].rank
        yield {
            "ph": "i",
            "s": scope,
            "pid": rank,
            "tid": -2,
            "ts": float(number),
            "name": f"{finding.kind.label}: {finding.summary}",
            "args": {
                "cost_percent": finding.cost_percent,
                "confidence": finding.confidence.value,
                "do": finding.advice,
            },
        }


def _name(what: str, rank: int, lane: int, value: str | int) -> dict[str, object]:
    key = "sort_index"
    if isinstance(value, str):
        key = "name"
    return {"ph": "M", "name": what, "pid": rank, "tid": lane, "args": {key: value}}


def _span(
    place: tuple[int, int], name: str, category: str, start: int, length: int
) -> dict[str, object]:
    rank, lane = place
    return {
        "ph": "X",
        "pid": rank,
        "tid": lane,
        "name": name,
        "cat": category,
        "ts": start / 1e3,
        "dur": length / 1e3,
    }
