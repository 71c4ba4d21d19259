"""Sentences on a watched job, and its money."""

from __future__ import annotations

import pytest

from torchscale.features.watch.text import (
    current_finding,
    format_dollars,
    headline,
    status_line,
    time_rows,
)
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.schema.watch.failure import FailureCause, JobFailure
from torchscale.schema.watch.rank import ProgramLine
from torchscale.schema.watch.report import JobTime, WatchFinding, WatchReport

REPORT = WatchReport(
    tool_version="1",
    command=(),
    started_at="2026-01-01",
    seconds=40.0,
    world_size=2,
    steps=100,
    step_seconds=0.2,
    time=JobTime(start=10.0, steps=20.0, saving=0.2, end=9.8),
    goodput=0.5,
)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (1_250.4, "$1,250"),
        (12.3, "$12.30"),
        (0.5, "$0.50"),
        (0.00421, "$0.0042"),
        (0.05, "$0.050"),
        (0.0, "$0.00"),
    ],
)
def test_money(amount: float, text: str) -> None:
    assert format_dollars(amount) == text


SLOW = Finding(
    kind=FindingKind.STRAGGLER,
    rank=1,
    cost_percent=59.4,
    cost_seconds=0.1,
    confidence=Confidence.HIGH,
    summary="rank 1 is slow",
    advice="look",
)
LINE = ProgramLine(file="/home/me/train.py", line=88, function="main", called="", samples=60)


def _with(*items: WatchFinding) -> WatchReport:
    return REPORT.model_copy(update={"findings": items})


def test_a_job_that_runs_is_a_line() -> None:
    report = _with(WatchFinding(finding=SLOW, lines=((LINE, 0.1),)))
    report = report.model_copy(update={"steps": 12_400})
    assert status_line(report, 0.0231) == (
        "torchscale: step 12,400 · 23.1 ms a step · goodput 50.0 % · straggler: rank 1, "
        "train.py:88 (59 %)"
    )
    young = REPORT.model_copy(update={"step_seconds": None})
    assert status_line(young, None) == "torchscale: step 100 · goodput 50.0 %", "no verdict so far"
    assert status_line(REPORT, 0.2).endswith("goodput 50.0 % · no bottleneck found")


def test_what_has_passed_and_the_start_are_no_limits_of_now() -> None:
    pauses = SLOW.model_copy(update={"kind": FindingKind.PAUSES, "rank": None, "cost_percent": 4.0})
    over, goes_on = WatchFinding(finding=SLOW, last_step=90), WatchFinding(finding=pauses)
    assert current_finding(_with(over, goes_on)) == "pauses (4 %)"
    start = SLOW.model_copy(update={"kind": FindingKind.SLOW_START})
    assert current_finding(_with(over, WatchFinding(finding=start))) == "no bottleneck found"
    doubted = pauses.model_copy(update={"confidence": Confidence.LOW})
    assert current_finding(_with(WatchFinding(finding=doubted))) == "pauses (4 %, low confidence)"


def test_the_headline_has_goodput_and_its_bound() -> None:
    assert headline(REPORT) == "100 steps on 2 ranks in 40 s, 200 ms a step, goodput 50.0 %"
    unknown = REPORT.model_copy(update={"repeated_steps": None})
    assert headline(unknown).endswith("goodput at most 50.0 %")
    torn = REPORT.model_copy(update={"time": JobTime(steps=20.0, unseen=20.0)})
    assert headline(torn).endswith("goodput at least 50.0 %")
    both = torn.model_copy(update={"repeated_steps": None})
    assert headline(both).endswith("goodput not known")
    earlier = REPORT.model_copy(update={"step_seconds": None})
    assert headline(earlier) == "100 steps in 40 s, goodput 50.0 %"


def test_parts_of_half_a_second_have_a_row_and_steps_always() -> None:
    assert [row[0] for row in time_rows(REPORT)] == [
        "productive steps",
        "start-up",
        "after the last step",
        "all",
    ]
    again = REPORT.model_copy(update={"repeated_steps": 3})
    assert "recomputed steps (3)" in [row[0] for row in time_rows(again)]
    nothing = REPORT.model_copy(update={"time": JobTime(start=3.0)})
    assert time_rows(nothing)[0] == ("productive steps", "0 s", "0.0 %")


def test_repeated_steps_that_are_not_known_have_no_number() -> None:
    rows = time_rows(REPORT.model_copy(update={"repeated_steps": None}))

    assert [row[0] for row in rows[:2]] == ["steps", "recomputed steps"]
    assert rows[1] == ("recomputed steps", "not known", "")


@pytest.mark.parametrize(
    ("steps", "code", "cause", "expected"),
    [
        (1_240, 1, FailureCause.EXCEPTION, "Failed after 1,240 steps (exit code 1): why"),
        (0, 1, FailureCause.EXCEPTION, "Failed before its first step (exit code 1): why"),
        (1, None, FailureCause.SIGNAL, "Failed after 1 step: why"),
        (1_240, 1, FailureCause.INTERRUPTED, "Ended after 1,240 steps: why"),
    ],
)
def test_the_headline_of_a_job_that_failed_says_why(
    steps: int, code: int | None, cause: FailureCause, expected: str
) -> None:
    failure = JobFailure(cause=cause, summary="why")
    failed = REPORT.model_copy(update={"steps": steps, "exit_code": code, "failure": failure})
    assert headline(failed) == expected
