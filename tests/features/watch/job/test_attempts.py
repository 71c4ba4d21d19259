"""Attempts of a watched job, from files as its ranks write them: parts add up, repeated steps are
counted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import write_job
from torchscale.analysis.exchanges.events import Moments, RankEvents
from torchscale.features.watch.job.job import WatchedJob
from torchscale.schema.watch.report import WatchReport

BEGAN = START_NS * 1e-9
STARTED = BEGAN - 4.0
STEP = 0.0131
"""Seconds of a step of a simulated job, about."""


def _later(events: list[RankEvents], seconds: float) -> list[RankEvents]:
    """The same job, so much later."""
    shift = round(seconds * 1e9)
    return [
        RankEvents(
            Moments(one.moments.time + shift, one.moments.kind, one.moments.detail),
            replace(one.calls, time=one.calls.time + shift),
            one.core_time,
        )
        for one in events
    ]


def _checkpoints(directory: Path, attempt: int, **calls: list[dict[str, Any]]) -> None:
    """What rank 0 of an attempt saved and loaded."""
    folder = directory / "ranks" / f"0.{attempt}"
    (folder / "checkpoints.json").write_text(json.dumps(calls))


def _call(steps: int, at: float, path: str = "/job/last.pt") -> dict[str, Any]:
    """A call that ended ``at`` seconds after the job's first moment."""
    time = START_NS + round(at * 1e9)
    file = {"path": path, "size": 9, "inode": 5, "modified_ns": time}
    return {"call": "torch.save", "steps": steps, "began_ns": time - 1, "ended_ns": time, **file}


def _report(directory: Path, seconds: float) -> WatchReport:
    watched = WatchedJob(directory, ("torchrun", "train.py"), STARTED)
    watched.advance()
    watched.judge()
    watched.close(STARTED + seconds)
    return watched.report(STARTED + seconds, 0)


def _restarted(directory: Path, steps: int = 30) -> Path:
    """50 steps, and 10 s after their beginning another attempt."""
    write_job(directory, job(2, 49), state="running")
    second = _later(job(2, steps - 1), 10.0)
    write_job(directory, second, attempt=1, began=BEGAN + 9.0, process_began=BEGAN + 7.0)
    return directory


def test_a_restart_from_a_checkpoint_repeats_what_came_after_it(tmp_path: Path) -> None:
    _restarted(tmp_path)
    _checkpoints(tmp_path, 0, saves=[_call(40, 0.5)])
    _checkpoints(tmp_path, 1, loads=[_call(0, 9.5)])
    report = _report(tmp_path, 30.0)

    assert report.repeated_steps == 10
    assert [attempt.first_step for attempt in report.attempts] == [0, 40]
    assert "last.pt" in report.attempts[1].origin
    assert report.steps == 80
    # The first step is a part of the start-up.
    assert report.time.recomputed == pytest.approx(9 * STEP, rel=0.05)
    assert report.time.steps == pytest.approx((49 + 20) * STEP, rel=0.05)


def test_parts_of_two_attempts_add_up_to_the_wall_time(tmp_path: Path) -> None:
    report = _report(_restarted(tmp_path), 30.0)
    time = report.time

    assert time.total == pytest.approx(30.0, abs=1e-6)
    assert report.goodput == pytest.approx(time.steps / 30.0)
    first_ended = 49 * STEP
    assert time.restarts == pytest.approx(7.0 - first_ended, abs=0.05)
    assert time.start == pytest.approx(4.0 + 3.0, abs=0.05)
    assert time.end == pytest.approx(30.0 - 4.0 - 10.0 - 29 * STEP, abs=0.05)
    assert report.device_time.total == pytest.approx(2 * time.total)


def test_a_restart_that_loads_nothing_repeats_all(tmp_path: Path) -> None:
    report = _report(_restarted(tmp_path), 30.0)

    assert report.repeated_steps == 30
    assert report.attempts[1].origin.startswith("from zero")
    assert not any("not known" in note for note in report.notes)


def test_what_is_not_known_has_no_number_and_a_note(tmp_path: Path) -> None:
    _restarted(tmp_path)
    _checkpoints(tmp_path, 1, loads=[_call(0, 9.5, "/job/shard.bin")])
    report = _report(tmp_path, 30.0)

    assert report.repeated_steps is None
    assert report.attempts[1].first_step is None
    assert report.time.recomputed == 0
    assert any("attempt 1" in note and "shard.bin" in note for note in report.notes)


def test_a_damaged_list_of_checkpoints_is_not_known_and_harms_nothing_else(tmp_path: Path) -> None:
    _restarted(tmp_path)
    (tmp_path / "ranks" / "1.1" / "checkpoints.json").write_text("{")
    report = _report(tmp_path, 30.0)

    assert report.repeated_steps is None
    assert report.time.total == pytest.approx(30.0)
    assert any("checkpoints.json" in note for note in report.notes)


def test_ranks_whose_end_was_not_written_are_named(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 49), state="running")
    notes = _report(tmp_path, 30.0).notes

    assert any("was not written" in note and "0, 1" in note for note in notes)


def test_time_that_a_rank_could_not_write_is_not_seen_and_no_stall(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 49), problem="OSError: No space left on device")
    report = _report(tmp_path, 30.0)

    assert report.time.unseen == pytest.approx(26.0 - 49 * STEP, abs=0.05)
    assert report.time.end == report.time.stalls == 0
    assert report.time.total == pytest.approx(30.0)


def test_steps_that_only_one_rank_has_written_count(tmp_path: Path) -> None:
    events = job(2, 49)
    cut = events[1].moments.time < events[1].moments.time[-1] - 200_000_000
    moments = events[1].moments
    events[1] = replace(
        events[1], moments=Moments(moments.time[cut], moments.kind[cut], moments.detail[cut])
    )
    write_job(tmp_path, events, state="running")
    report = _report(tmp_path, 30.0)

    assert report.steps == 50
    assert report.time.total == pytest.approx(30.0)


def test_numbers_of_attempts_may_have_gaps(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 49))
    write_job(tmp_path, _later(job(2, 19), 10.0), attempt=3, began=BEGAN + 9.0)
    report = _report(tmp_path, 30.0)

    assert [attempt.number for attempt in report.attempts] == [0, 3]
    assert report.steps == 70


def test_an_attempt_without_a_step_is_start_up(tmp_path: Path) -> None:
    none = [replace(one, moments=Moments(*[one.moments.time[:0]] * 3)) for one in job(2, 0)]
    write_job(tmp_path, none, began=BEGAN + 1.0)
    report = _report(tmp_path, 30.0)

    assert report.steps == 0
    assert report.time.start == pytest.approx(5.0)
    assert report.time.total == pytest.approx(30.0)


def _evidence(directory: Path, number: int) -> None:
    """What rank ``number`` shows beside its steps: at 0.2 s it is at line 30, else at line 20; it
    compiled before its first step."""
    folder = directory / "ranks" / f"{number}.0"
    places = [
        {"place": place, "file": "train.py", "line": line, "function": "main", "called": ""}
        for place, line in enumerate((20, 30))
    ]
    with (folder / "names.jsonl").open("a") as file:
        file.write("".join(json.dumps(place) + "\n" for place in places))
    times = START_NS + np.arange(0, 600, 50) * 1_000_000
    samples = np.stack([times, (times == START_NS + 200_000_000).astype(np.int64)], axis=1)
    (folder / "samples-000001.bin").write_bytes(samples.tobytes())
    memory = np.stack([times, times * 0 + (300 << 20), times * 0 - 1, times * 0 - 1], axis=1)
    (folder / "memory-000001.bin").write_bytes(memory.tobytes())
    frame = {"began_ns": START_NS - 5, "seconds": 0.004, "id": "0/0", "file": "model.py", "line": 4}
    flags = {"reason": "", "is_backward": False, "has_failed": False, "function": "forward"}
    (folder / "compiles.jsonl").write_text(json.dumps({**frame, **flags}) + "\n")


def test_evidence_of_a_rank_goes_by_the_steps_of_that_rank(tmp_path: Path) -> None:
    events = job(2, 50)
    events[1] = _later(events, 0.1)[1]
    write_job(tmp_path, events)
    for number in range(2):
        _evidence(tmp_path, number)
    _checkpoints(tmp_path, 0, saves=[_call(10, 0.2)])
    watched = WatchedJob(tmp_path, ("torchrun", "train.py"), STARTED)
    watched.advance()
    first, second = watched.attempts[0].evidence

    place = {rank: int(one.lines.place.argmax()) for rank, one in enumerate((first, second))}
    assert (first.lines.places[1].line, second.lines.places[1].line) == (30, 30)
    assert first.lines.step[place[0]] == pytest.approx(0.2 / STEP, abs=1.5)
    assert second.lines.step[place[1]] == pytest.approx(0.1 / STEP, abs=1.5)
    assert first.memory.resident.tolist() == [300 << 20] * len(first.memory.step)
    assert len(first.memory.step) >= 10
    (compiled,) = first.compilations
    assert (compiled.step, compiled.function) == (-1, "forward")
    assert [save.steps for save in first.saves] == [10]
    assert second.saves == ()


def test_files_of_a_rank_without_evidence_are_read(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 50))
    watched = WatchedJob(tmp_path, ("torchrun", "train.py"), STARTED)
    watched.advance()
    for one in watched.attempts[0].evidence:
        assert not len(one.lines.step)
        assert not len(one.memory.step)
        assert one.compilations == ()
