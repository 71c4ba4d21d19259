"""When it is asked why a job stands still."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from torchscale.features.watch.job.standing import Standing
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Confidence

VERDICT = Autopsy(cause=HangCause.UNKNOWN, confidence=Confidence.LOW, summary="why")


class Job:
    """Has waited for some seconds, and knows why or not."""

    def __init__(self, waited: float, verdict: Autopsy | None) -> None:
        self.seconds, self.verdict, self.asked = waited, verdict, 0

    def guarded(self, action: Callable[[], object]) -> None:
        action()

    def waited(self, now: float) -> float:
        return self.seconds

    def look_why(self, program: int | None) -> Autopsy | None:
        self.asked += 1
        return self.verdict


def _standing(job: Job, told: list[Any]) -> Standing:
    return Standing(
        cast("Any", job), 6.0, lambda verdict, seconds: told.append(seconds), lambda: None
    )


def test_a_job_without_progress_is_asked_after_the_time() -> None:
    told: list[float] = []
    job = Job(0.0, VERDICT)
    standing = _standing(job, told)
    assert not standing.is_explained(5.0)
    assert standing.is_explained(7.0)
    assert told == [7.0]


def test_a_job_that_does_not_begin_is_asked_once_somebody_waits_so_long() -> None:
    told: list[float] = []
    assert not _standing(Job(5.0, VERDICT), told).is_explained(None)
    assert _standing(Job(8.0, VERDICT), told).is_explained(None)
    assert told == [8.0]


def test_a_slow_start_is_looked_at_again_and_not_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    told: list[float] = []
    job = Job(8.0, None)
    standing = _standing(job, told)
    for _ in range(3):
        assert not standing.is_explained(None)
    assert job.asked == 1
    now[0], job.verdict = 116.0, VERDICT
    assert standing.is_explained(None)
    assert told == [8.0]
