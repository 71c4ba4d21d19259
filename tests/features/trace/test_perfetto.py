"""The timeline for Perfetto."""

from __future__ import annotations

import gzip
import json

from tests.features.trace.analysis.test_analyze import STEPS, trace, training
from tests.features.trace.readers.builders import kernel
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.perfetto import perfetto_json


def test_it_holds_every_rank_its_steps_its_exchange_and_the_findings() -> None:
    recorded = training([0.0, 100.0])
    analysis = analyze_trace(recorded)
    content = perfetto_json(recorded, analysis)
    assert content == perfetto_json(recorded, analysis)
    events = json.loads(gzip.decompress(content))["traceEvents"]
    for rank in (0, 1):
        mine = [event for event in events if event["pid"] == rank]
        assert sum(event.get("cat") == "step" for event in mine) == STEPS
        assert (
            sum(event["ph"] == "b" for event in mine)
            == sum(event["ph"] == "e" for event in mine)
            == STEPS
        )
    assert min(event["ts"] for event in events if "ts" in event) >= 0
    marks = [event for event in events if event["ph"] == "i"]
    assert len(marks) == len(analysis.findings)
    assert any("Straggler: rank 1" in event["name"] and event["pid"] == 1 for event in marks)


def test_a_recording_of_communication_alone_is_drawn_too() -> None:
    recorded = trace([[kernel("ncclKernel_AllReduce", 10.0, 5.0)]] * 2)
    events = json.loads(gzip.decompress(perfetto_json(recorded, analyze_trace(recorded))))[
        "traceEvents"
    ]
    assert {event["ts"] for event in events if event["ph"] == "b"} == {0.0}
