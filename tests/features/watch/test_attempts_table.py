"""The attempts of a job, and why each ended."""

from __future__ import annotations

from torchscale.features.watch.attempts_table import attempts_table
from torchscale.schema.watch.failure import FailureCause, JobFailure
from torchscale.schema.watch.report import JobState, WatchedAttempt, WatchReport

KILLED = JobFailure(cause=FailureCause.SIGNAL, summary="rank 3 was ended by SIGKILL")


def _attempt(number: int, **fields: object) -> WatchedAttempt:
    known = {"number": number, "began": 1.0, "last_seen": 2.0, "world_size": 4, "steps": 1_200}
    return WatchedAttempt.model_validate({**known, **fields})


def _rows(*attempts: WatchedAttempt, state: JobState = JobState.DONE) -> list[list[str]]:
    report = WatchReport(
        tool_version="1",
        command=(),
        started_at="2026-01-01",
        seconds=1.0,
        state=state,
        attempts=attempts,
    )
    table = attempts_table(report)
    return [] if table is None else [[value.text for value in row] for row in table.rows]


def test_one_attempt_needs_no_table() -> None:
    assert _rows(_attempt(0)) == []


def test_each_attempt_has_its_reason_and_what_its_end_cost() -> None:
    assert _rows(
        _attempt(0, failure=KILLED, lost_seconds=90.0),
        _attempt(1, lost_seconds=5.0),
        _attempt(2, lost_seconds=7.0),
        _attempt(3, run=1),
    ) == [
        ["0", "4", "1,200", "rank 3 was ended by SIGKILL", "90 s"],
        ["1", "4", "1,200", "not known", "5 s"],
        ["2", "4", "1,200", "the end of its run", "7 s"],
        ["3", "4", "1,200", "the end of the program", "–"],
    ]


def test_the_last_one_may_run() -> None:
    rows = _rows(_attempt(0, failure=KILLED), _attempt(1), state=JobState.RUNNING)
    assert rows[-1][3] == "it runs"


def test_the_last_ones_are_shown() -> None:
    rows = _rows(*(_attempt(number) for number in range(30)))
    assert (len(rows), rows[0][0], rows[-1][0]) == (20, "10", "29")
