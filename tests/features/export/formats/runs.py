"""Runs to export: every kind of cell with texts from the worst of machines, and figures made by
hand."""

from __future__ import annotations

from typing import Any

from torchscale.report.figures.figure import ExportedCell, ExportedRun, Figure
from torchscale.schema.node.check import Check, Status
from torchscale.schema.state import State

NASTY = 'a"b\\c\nd <&> \x1b[31m\x00 | `x` [y](http://z) @all \U0001f600 ü'
RATE = Figure("samples_per_second", "samples/s", "samples ÷ time", 1450.25, (1441.0, 1459.5), True)
STEP = Figure("step_mean_seconds", "s", "mean", 0.02, None, False)
BUS = Figure(
    "bus_bandwidth_bytes_per_second", "B/s", "best", 3e9, None, True, {"operation": "all_reduce"}
)


def cell(**changes: Any) -> ExportedCell:
    defaults: dict[str, Any] = {
        "id": "gpt2-n2",
        "kind": "training",
        "labels": {"model": "gpt2", "gpus": "2"},
        "properties": {"precision": "bf16"},
        "state": State.OK,
        "reason": "",
        "flags": (),
        "figures": (RATE, STEP),
    }
    return ExportedCell(**{**defaults, **changes})


def check(status: Status, **changes: str) -> Check:
    defaults = {
        "id": "shm",
        "group": "host",
        "title": "shared memory",
        "seen": "64 MiB",
        "expected": "more",
    }
    return Check(**{**defaults, "advice": "mount it", **changes}, status=status)


RUN = ExportedRun(
    "nightly",
    (
        cell(),
        cell(id="comm", kind="collectives", labels={"gpus": "2"}, properties={}, figures=(BUS,)),
        cell(id="flagged", flags=("noisy",)),
        cell(id="oom", state=State.OOM, reason="out of memory", figures=()),
        cell(id="lost", state=State.NODE_LOST, reason="node 1: gone", figures=()),
        cell(id="skipped", state=State.SKIPPED, reason="2 devices", figures=()),
        cell(id="waiting", state=State.WAITING, reason="", figures=()),
    ),
)
HOSTILE = ExportedRun(
    NASTY,
    (
        cell(
            id=NASTY,
            labels={"model": NASTY},
            properties={"precision": NASTY},
            flags=(NASTY,),
            figures=(BUS, STEP),
        ),
        cell(id="x", state=State.CRASHED, reason=NASTY, figures=()),
    ),
)
CHECKS = ExportedRun(
    "node", checks=tuple(check(status, id=status.value, title=status.value) for status in Status)
)
