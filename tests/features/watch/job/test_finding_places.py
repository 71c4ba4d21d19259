"""Where to look for a finding: its lines, and the part of a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import write_job, write_samples
from torchscale.features.watch.job.job import WatchedJob
from torchscale.schema.profiles.finding import FindingKind
from torchscale.schema.watch.report import WatchFinding

STARTED = START_NS * 1e-9 - 4.0


def _straggler(directory: Path) -> WatchFinding:
    watched = WatchedJob(directory, ("torchrun", "train.py"), STARTED)
    watched.advance()
    watched.judge()
    found = watched.report(STARTED + 60).findings
    return next(item for item in found if item.finding.kind is FindingKind.STRAGGLER)


def test_the_part_that_has_most_of_it_is_said(tmp_path: Path) -> None:
    write_job(tmp_path, job(3, 200, lambda rank, _: 4.0 * (rank == 1)))
    for rank in range(3):
        write_samples(tmp_path, rank, {12: 60, 20: 40})
    finding = _straggler(tmp_path).finding
    assert finding.evidence[1] in (
        "4.00 ms of that in the backward pass",
        "3.99 ms of that in the backward pass",
    )
    assert finding.advice.startswith("look at what it does in the backward pass; compare rank 1's")


def test_a_line_comes_before_a_part(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 200, lambda rank, _: 4.0 * rank))
    write_samples(tmp_path, 0, {12: 60, 20: 40})
    write_samples(tmp_path, 1, {31: 40, 12: 60, 20: 40})
    found = _straggler(tmp_path)
    assert found.lines[0][0].line == 31
    assert found.finding.advice.startswith("look at train.py:31 (log) first; compare rank 1's")


def test_a_line_of_later_steps_is_measured_by_their_length(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 400, lambda rank, step: 10.0 * rank * (step >= 200)))
    write_samples(tmp_path, 0, {12: 60, 20: 40}, between=(2.6, 6.6))
    write_samples(tmp_path, 1, {31: 50, 12: 50}, between=(2.6, 6.6))
    found = _straggler(tmp_path)
    assert found.first_step is not None
    (line, seconds) = found.lines[0]
    assert line.line == 31
    assert seconds == pytest.approx(0.5 * 0.0221, rel=0.1)  # of steps of 22 ms, not of 17


def test_lines_that_differ_by_the_chance_of_few_samples_are_not_named(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 200, lambda rank, _: 4.0 * rank))
    write_samples(tmp_path, 0, {12: 12, 20: 9})
    write_samples(tmp_path, 1, {12: 9, 20: 12})
    assert not _straggler(tmp_path).lines


def test_without_samples_nothing_is_said(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 200, lambda rank, _: 4.0 * rank))
    found = _straggler(tmp_path)
    assert not found.lines
    assert "look at" not in found.finding.advice
