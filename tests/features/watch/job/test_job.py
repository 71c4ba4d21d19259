"""What is known of a watched job."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import USE, write_job, write_samples
from torchscale.features.watch.job import host_load
from torchscale.features.watch.job.host_load import HostLoadSamples
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.memory_limits import memory_limits
from torchscale.features.watch.job.settled import LEFT_OUT
from torchscale.schema.launch.hang import Autopsy, HangCause
from torchscale.schema.profiles.finding import Confidence, FindingKind
from torchscale.schema.watch.report import JobState
from torchscale.worker.watch import clock

STARTED = START_NS * 1e-9 - 4.0


def _job(directory: Path, command: tuple[str, ...] = ("torchrun", "train.py")) -> WatchedJob:
    watched = WatchedJob(directory, command, STARTED)
    watched.advance()
    watched.judge()
    return watched


def test_a_slow_rank_is_reported_with_the_collective_and_the_line(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 200, lambda rank, _: 4.0 * rank))
    write_samples(tmp_path, 0, {12: 60, 20: 40})
    write_samples(tmp_path, 1, {31: 40, 12: 60, 20: 40})

    report = _job(tmp_path).report(STARTED + 60)
    (found,) = [i for i in report.findings if i.finding.kind is FindingKind.STRAGGLER]
    assert found.finding.rank == 1
    assert found.collective == "all_reduce of 1.00 MiB"
    (line, seconds) = found.lines[0]
    assert (line.line, line.function) == (31, "log")
    assert report.step_seconds is not None
    assert seconds == pytest.approx(40 / 140 * report.step_seconds, rel=0.03)  # in two parts of it
    assert report.steps == 201
    assert report.left_out_steps == LEFT_OUT
    assert [rank.blame for rank in report.per_rank] == pytest.approx([0, 1], abs=0.05)


def test_the_wall_time_is_all_accounted_for(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 100, saving=lambda rank, step: 50.0 * (step % 20 == 19)))
    now = STARTED + 60
    time = _job(tmp_path).report(now).time

    assert time.total == pytest.approx(60, abs=1e-6)
    assert time.saving == pytest.approx(5 * 0.05, abs=0.01)  # the last one after the last step
    assert 0 < time.goodput < 0.1


def test_a_job_that_was_started_again_counts_both_attempts(tmp_path: Path) -> None:
    events = job(2, 50)
    write_job(tmp_path, events)
    write_job(tmp_path, events, attempt=1)
    watched = _job(tmp_path)
    watched.advance()

    report = watched.report(STARTED + 60)
    assert report.restarts == 1
    assert report.steps == 102


def test_a_program_without_ranks_says_why(tmp_path: Path) -> None:
    report = _job(tmp_path).report(STARTED + 1)

    assert not report.steps
    assert "no rank reported" in report.notes[0]


def test_ranks_of_several_hosts_are_not_compared(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 100, lambda rank, _: 4.0 * rank))
    path = tmp_path / "ranks" / "1.0" / "rank.json"
    text = path.read_text().replace('"here"', '"there"')
    path.write_text(text.replace('"local_world_size": 2', '"local_world_size": 1'))
    other = tmp_path / "ranks" / "0.0" / "rank.json"
    other.write_text(other.read_text().replace('"local_world_size": 2', '"local_world_size": 1'))
    report = _job(tmp_path).report(STARTED + 60)

    assert not [item for item in report.findings if item.finding.rank is not None]
    assert any("several hosts" in note for note in report.notes)


def test_what_ranks_could_not_do_and_lost_is_noted(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 60), problem="OSError: No space left on device")
    lost = {**USE, "lost_calls": 7}
    (tmp_path / "ranks" / "0.0" / "use.json").write_text(json.dumps(lost))
    notes = _job(tmp_path).report(STARTED + 60).notes

    assert any("No space left" in note for note in notes)
    assert any("7 collectives were not read" in note for note in notes)


@pytest.mark.parametrize(("torch", "times"), [("2.13.0+cpu", 0), ("2.99.0", 1)])
def test_an_untested_torch_is_noted_once(tmp_path: Path, torch: str, times: int) -> None:
    write_job(tmp_path, job(2, 60), torch=torch)
    notes = _job(tmp_path).report(STARTED + 60).notes

    assert sum("was tested with PyTorch" in note for note in notes) == times


def test_secrets_of_the_command_are_hidden(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 20))
    report = _job(tmp_path, ("python", "train.py", "--api-key", "s3cr3tvalue")).report(STARTED)

    assert "s3cr3tvalue" not in report.model_dump_json()


def _autopsy(cause: HangCause, ranks: tuple[int, ...], summary: str) -> Autopsy:
    return Autopsy(cause=cause, ranks=ranks, confidence=Confidence.LOW, summary=summary)


def test_a_slow_end_hides_no_hang_that_was_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(tmp_path, job(2, 200))
    watched = _job(tmp_path)
    late = _autopsy(HangCause.RANK_MISSING, (1,), "rank 1 did not call it")
    later = _autopsy(HangCause.ORDER, (0,), "in another order")
    nobody = _autopsy(HangCause.UNKNOWN, (), "no rank is known to wait in a collective")
    looks = iter([nobody, late, nobody, later])
    monkeypatch.setattr("torchscale.features.watch.job.job.job_autopsy", lambda *_: next(looks))

    seen = [(watched.look_why(), watched.autopsy) for _ in range(4)]
    assert seen == [(nobody, nobody), (late, late), (nobody, late), (later, later)]


@pytest.mark.parametrize(
    ("exit_code", "changes", "state"),
    [
        (None, {}, JobState.RUNNING),
        (None, {"is_over": True}, JobState.DONE),
        (0, {}, JobState.DONE),
        (130, {}, JobState.DONE),
        (143, {}, JobState.DONE),
        (1, {}, JobState.FAILED),
        (137, {}, JobState.FAILED),
        (1, {"is_stopped": True}, JobState.DONE),
    ],
)
def test_how_a_job_ended(
    tmp_path: Path, exit_code: int | None, changes: dict[str, bool], state: JobState
) -> None:
    assert _job(tmp_path).report(STARTED, exit_code, **changes).state is state


IDLE = {0: 0.0, 1: 0.0}


def test_what_others_take_of_the_cores_makes_confidence_low(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(tmp_path, job(2, 200, lambda rank, _: 4.0 * rank), cpus=[0, 1], threads=1)
    watched = _job(tmp_path)

    def confidence(others: float) -> set[tuple[Confidence, tuple[str, ...]]]:
        """With so much of both cores used by others."""
        load = HostLoadSamples()
        for second in range(8):
            monkeypatch.setattr(clock, "now", lambda s=second: START_NS * 1e-9 + s)
            busy = {0: second * (0.5 + others), 1: second * (0.5 + others)}
            monkeypatch.setattr(host_load, "_cores", lambda b=busy: (b, IDLE, IDLE))
            monkeypatch.setattr(host_load, "_used_by", lambda _, s=second: s * 0.5)
            load.sample([1, 2])
        watched.load = load
        findings = watched.report(STARTED + 60, 0).findings
        return {(item.finding.confidence, item.finding.doubts) for item in findings}

    assert (Confidence.HIGH, ()) in confidence(0.05)
    assert confidence(0.3) == {(Confidence.LOW, ("contended",))}


def test_a_change_is_told_where_a_finding_begins_alone(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 1200, lambda rank, step: 6.0 * rank * (step > 600)))
    watched = _job(tmp_path)
    (change,) = watched.verdict.changes
    assert watched.report(STARTED + 60).changes == (change,)
    watched.verdict = replace(watched.verdict, changes=(300, change))
    assert watched.report(STARTED + 60).changes == (change,)


def test_ten_steps_make_no_figure_and_eleven_do(tmp_path: Path) -> None:
    write_job(tmp_path / "short", job(2, LEFT_OUT))
    write_job(tmp_path / "longer", job(2, LEFT_OUT + 1))
    assert _job(tmp_path / "short").report(STARTED + 60).step_seconds is None
    assert _job(tmp_path / "longer").report(STARTED + 60).step_seconds is not None


def test_limits_of_memory_are_those_of_the_device_and_of_the_control_group(tmp_path: Path) -> None:
    group = tmp_path / "sys/fs/cgroup/job"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    (group / "memory.max").write_text(str(1 << 30))
    write_job(tmp_path, job(2, 5))
    watched = _job(tmp_path)
    watched.report(STARTED + 60)
    for stream in watched.streams.values():
        stream.use = stream.use.model_copy(update={"device_memory_bytes": 80 << 30})

    limits = memory_limits(watched.streams.values(), tmp_path)
    assert limits.device == (80 << 30, 80 << 30)
    assert list(limits.host.values()) == [1 << 30]
