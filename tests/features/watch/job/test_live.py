"""What is said of a job while it runs, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import write_job
from tests.features.watch.test_fail_on import SLOW
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.live import LiveLines, recent_step_seconds
from torchscale.schema.profiles.finding import Finding, FindingKind
from torchscale.schema.watch.report import WatchFinding, WatchReport


@pytest.fixture
def watched(tmp_path: Path) -> WatchedJob:
    """A job of steps that take 10 ms, the last 100 of them 14 ms."""
    slow = lambda rank, step: 4.0 * (rank == 1 and step >= 300)  # noqa: E731 - a cause, as in other tests
    found = WatchedJob(write_job(tmp_path, job(2, 400, slow)), ("python",), START_NS * 1e-9)
    found.advance()
    return found


class Told:
    """What is said of a job that is judged every 15 seconds."""

    def __init__(self, watched: WatchedJob, *, on_terminal: bool = True) -> None:
        self.now, self.lines, self.steps = 0.0, list[tuple[float, str]](), 0
        self._job = watched
        self._live = LiveLines(
            lambda text: self.lines.append((self.now, text)),
            on_terminal=on_terminal,
            clock=lambda: self.now,
        )

    def judge(self, *findings: Finding, steps: int = 100, times: int = 1) -> None:
        for _ in range(times):
            self.now += 15.0
            self.steps += steps
            report = WatchReport(
                tool_version="1",
                command=(),
                started_at="2026-01-01",
                seconds=self.now,
                steps=self.steps,
                step_seconds=0.02,
                findings=tuple(WatchFinding(finding=one) for one in findings),
            )
            self._live.judged(self._job, report)

    @property
    def times(self) -> list[float]:
        """Of the lines on how it goes."""
        return [now for now, text in self.lines if text.startswith("torchscale: step")]


def test_lines_come_after_15_seconds_and_then_at_growing_distances(watched: WatchedJob) -> None:
    told = Told(watched)
    told.judge(times=120)
    assert told.times == [15, 45, 105, 225, 465, 945, 1545]
    assert told.lines[0][1].startswith("torchscale: step 100 · ")
    assert told.lines[0][1].endswith("no bottleneck found")


def test_in_a_log_they_come_every_three_minutes(watched: WatchedJob) -> None:
    told = Told(watched, on_terminal=False)
    told.judge(times=30)
    told.judge(SLOW, times=10)
    assert told.times == [180, 360, 540]


def test_a_finding_is_told_at_once_and_once(watched: WatchedJob) -> None:
    told = Told(watched)
    told.judge(times=40)
    lines = len(told.lines)
    told.judge(SLOW, times=3)
    new = told.lines[lines:]
    assert list(new[0]) == [615, "torchscale: rank 1 is slow"]
    assert new[1][1].endswith("straggler: rank 1 (59 %)"), "and the line says it, too"
    assert len(new) == 2


def test_findings_that_take_turns_make_a_line_a_minute(watched: WatchedJob) -> None:
    other = SLOW.model_copy(update={"kind": FindingKind.PAUSES, "rank": None})
    told = Told(watched)
    told.judge(times=63)
    before = len(told.times)
    for _ in range(16):
        told.judge(SLOW, other)
        told.judge(other, SLOW)
    assert len(told.times) - before <= 32 * 15 / 60


def test_a_job_that_stands_still_is_not_said_to_go_on(watched: WatchedJob) -> None:
    told = Told(watched)
    told.judge(steps=0, times=10)
    assert told.lines == [], "no step so far"
    told.judge()
    told.judge(steps=0, times=100)
    assert told.times == [165]


def test_the_recent_step_is_that_of_the_last_hundred(watched: WatchedJob) -> None:
    table = watched.attempts[-1].log
    assert table is not None and table.table is not None
    recent = recent_step_seconds(watched)
    assert recent is not None
    assert recent == pytest.approx(float(table.table.wall[:, -100:].mean()))
    assert recent > float(table.table.wall.mean()) + 0.002


def test_steps_of_minutes_are_recent_for_a_minute(tmp_path: Path) -> None:
    slow = lambda rank, step: 100_000.0 if step < 30 else 0.0  # noqa: E731 - as above
    found = WatchedJob(write_job(tmp_path, job(2, 40, slow)), ("python",), START_NS * 1e-9)
    assert recent_step_seconds(found) is None
    found.advance()
    recent = recent_step_seconds(found)
    assert recent is not None
    assert recent < 10, "of 40 steps the last 11, of which the first took 100 s"
