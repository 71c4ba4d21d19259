"""The wall time of a job over its attempts and runs, and its cost."""

from __future__ import annotations

import pytest

from torchscale.features.watch.analysis.goodput import (
    job_times,
    repeated_in_all,
    with_losses,
    with_price,
)
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.schema.watch.attempt import CommandRun
from torchscale.schema.watch.report import JobTime, WatchedAttempt, WatchFinding, WatchReport


def _attempt(number: int, began: float, seen: float, **known: object) -> WatchedAttempt:
    known.setdefault("time", JobTime(start=2.0, steps=seen - began - 3.0, end=1.0))
    facts: dict[str, object] = {"run": 0, "world_size": 1, "steps": 50, **known}
    return WatchedAttempt.model_validate(
        {"number": number, "began": began, "last_seen": seen, **facts}
    )


def test_attempts_of_one_run_with_what_lies_between_and_after() -> None:
    runs = [CommandRun(started=100.0, ended=160.0)]
    attempts = [_attempt(0, 100.0, 120.0), _attempt(1, 125.0, 155.0)]
    seconds, _ = job_times(runs, attempts, 999.0)

    assert seconds == JobTime(start=4.0, steps=44.0, end=7.0, restarts=5.0)
    assert seconds.total == 60.0
    assert seconds.goodput == pytest.approx(44 / 60)


def test_the_end_of_an_attempt_costs_until_the_next_one_is_where_it_was() -> None:
    again = JobTime(start=2.0, steps=20.0, recomputed=6.0)
    first, last = with_losses([_attempt(0, 100.0, 120.0), _attempt(1, 125.0, 155.0, time=again)])
    assert (first.lost_seconds, last.lost_seconds) == (13.0, None)
    assert with_losses([]) == []


def test_time_between_runs_is_idle_and_a_run_that_never_reported_is_start_up() -> None:
    runs = [
        CommandRun(started=100.0, ended=120.0),
        CommandRun(started=150.0, ended=155.0),
        CommandRun(started=160.0),
    ]
    attempts = [_attempt(0, 100.0, 120.0), _attempt(1, 160.0, 180.0, run=2)]
    seconds, _ = job_times(runs, attempts, 181.0)

    assert (seconds.idle, seconds.start, seconds.end) == (35.0, 9.0, 3.0)
    assert seconds.total == 81.0


def test_devices_are_the_ranks_of_each_attempt() -> None:
    runs = [CommandRun(started=100.0, ended=130.0), CommandRun(started=140.0, ended=160.0)]
    attempts = [
        _attempt(0, 100.0, 110.0, world_size=4),
        _attempt(1, 120.0, 130.0, world_size=2),
        _attempt(2, 140.0, 160.0, run=1, world_size=8),
    ]
    seconds, devices = job_times(runs, attempts, 160.0)

    assert seconds.total == 60.0
    assert devices.steps == 4 * 7 + 2 * 7 + 8 * 17
    assert devices.restarts == 4 * 10
    assert devices.idle == 2 * 10


def test_a_run_without_an_end_ends_as_the_next_begins() -> None:
    runs = [CommandRun(started=100.0), CommandRun(started=130.0, ended=150.0)]
    seconds, _ = job_times(runs, [], 150.0)

    assert seconds == JobTime(start=50.0)


def test_one_attempt_that_is_not_known_makes_the_sum_unknown() -> None:
    known = _attempt(1, 0.0, 9.0, repeated_steps=20)
    unknown = _attempt(2, 0.0, 9.0, repeated_steps=None)

    assert repeated_in_all([known, known]) == 40
    assert repeated_in_all([known, unknown]) is None


def test_money_of_parts_and_of_a_finding() -> None:
    finding = Finding(
        kind=FindingKind.STRAGGLER,
        rank=1,
        cost_percent=10.0,
        cost_seconds=0.5,
        confidence=Confidence.HIGH,
        summary="rank 1 is late",
        advice="look at it",
    )
    report = WatchReport(
        tool_version="1",
        command=(),
        started_at="2026-01-01",
        seconds=3_600.0,
        world_size=4,
        steps=900,
        findings=(WatchFinding(finding=finding, first_step=100, last_step=820),),
        attempts=(_attempt(0, 0.0, 3_600.0, steps=900),),
        device_time=JobTime(steps=4 * 3_000.0, saving=4 * 600.0),
    )
    priced = with_price(report, 2.5)

    assert with_price(report, None) == report
    assert priced.cost is not None
    assert priced.cost.parts.total == pytest.approx(10.0)
    assert priced.cost.parts.saving == pytest.approx(10 / 6)
    assert priced.findings[0].cost_dollars == pytest.approx(0.5 * 720 * 4 / 3_600 * 2.5)
    whole = report.model_copy(update={"findings": (WatchFinding(finding=finding),)})
    assert with_price(whole, 2.5).findings[0].cost_dollars == pytest.approx(0.5 * 900 * 4 / 1_440)
