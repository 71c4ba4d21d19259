"""The run folder that a watched job leaves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.factories import environment
from tests.features.watch.analysis.jobs import START_NS, Extra, job, nothing
from tests.features.watch.job.folders import write_job
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.errors import StoreError
from torchscale.features.watch.analysis.step_log import MAX_COLUMNS
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.read import read_watch
from torchscale.features.watch.job.runs import begin_run
from torchscale.features.watch.job.watched_program import WatchedProgram
from torchscale.features.watch.job.watched_run import write_run
from torchscale.schema.launch.record import payload
from torchscale.schema.launch.steps import StopRule
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.profiles.finding import FindingKind
from torchscale.schema.state import State
from torchscale.schema.watch.report import JobState, WatchReport
from torchscale.store.locations import WATCH_REPORT
from torchscale.store.run_folder import RunFolder, load_run
from torchscale.util.files import atomic_write_model

_STARTED = START_NS * 1e-9 - 4.0
_COMMAND = ("torchrun", "--nproc-per-node", "2", "src/train.py", "--lr", "{x}")


@dataclass
class _Job:
    directory: Path
    command: tuple[str, ...] = _COMMAND

    def run(
        self,
        steps: int = 200,
        extra: Extra = nothing,
        exit_code: int | None = 0,
        attempts: int = 1,
        **facts: object,
    ) -> RunFolder:
        for attempt in range(attempts):
            write_job(self.directory, job(2, steps, extra), attempt, **facts)
        return self.follow(exit_code)

    def follow(
        self, exit_code: int | None = 0, *, is_added: bool = False, seconds: float = 60.0
    ) -> RunFolder:
        """Read the attempts that are there; with ``is_added`` those of another run of the command."""
        past = begin_run(self.directory, _STARTED, starts_program=False)
        assert is_added == (len(past.runs) > 1)
        watched = WatchedJob(self.directory, self.command, _STARTED, past=past)
        watched.advance()
        watched.judge()
        watched.close(_STARTED + seconds)
        report = watched.report(_STARTED + seconds, exit_code, is_over=True)
        atomic_write_model(self.directory / WATCH_REPORT, report)
        return write_run(self.directory, watched, report, environment())

    @property
    def report(self) -> WatchReport:
        """``watch.json``."""
        return read_watch(self.directory)

    def launches(self) -> list[int]:
        """How many each cell has."""
        return [len(cell.launches) for cell in load_run(self.directory).cells]

    def summary(self) -> RunSummary:
        return summarize(load_run(self.directory))


def test_a_job_is_a_cell_with_steps_and_without_what_nobody_knows(tmp_path: Path) -> None:
    here = _Job(tmp_path)
    here.run()

    (cell,) = here.summary().cells
    assert (cell.state, cell.reason) == (State.OK, "")
    assert cell.cell.title == "train.py"
    assert cell.cell.batch_size is None
    figures = cell.figures
    assert figures is not None
    assert figures.stop_rule is StopRule.PROGRAM
    assert figures.measured_steps == 190, "all but the first ten and the one that nobody saw begin"
    assert figures.step_mean == here.report.step_seconds == pytest.approx(0.013, rel=0.1)
    assert figures.interval_factors is None
    assert cell.flags == ()
    assert figures.samples_per_second is None
    assert figures.phases.compute == pytest.approx(0.011, rel=0.1)
    assert figures.phases.forward is None
    assert cell.flops_unknown


def test_the_findings_of_a_run_are_those_of_its_job(tmp_path: Path) -> None:
    here = _Job(tmp_path)
    here.run(extra=lambda rank, _: 4.0 * rank)

    (cell,) = here.summary().cells
    assert cell.diagnosis is not None
    assert cell.diagnosis.findings == tuple(item.finding for item in here.report.findings)
    (found,) = [one for one in cell.diagnosis.findings if one.kind is FindingKind.STRAGGLER]
    assert found.rank == 1


def test_a_long_job_has_a_figure_of_all_its_steps_and_bounded_records(tmp_path: Path) -> None:
    here = _Job(tmp_path)
    write_job(tmp_path, job(2, MAX_COLUMNS + 500))
    folder = here.follow(seconds=300.0)

    (cell,) = here.summary().cells
    assert cell.state is State.OK, cell.reason
    assert cell.figures is not None
    assert MAX_COLUMNS + 480 <= cell.figures.measured_steps <= MAX_COLUMNS + 490
    assert cell.figures.steps.count == cell.figures.measured_steps
    assert cell.figures.step_mean == here.report.step_seconds
    (rate,) = [
        value for launch in cell.facts.launches for value in list(launch.values.values())[:1]
    ]
    assert 1 / rate == pytest.approx(cell.figures.step_mean)
    assert len(folder.steps(cell.cell, 0, 0)) <= MAX_COLUMNS


@pytest.mark.parametrize("exit_code", [0, None, 143, 130])
def test_what_a_job_did_until_it_was_ended_counts(tmp_path: Path, exit_code: int | None) -> None:
    here = _Job(tmp_path)
    here.run(exit_code=exit_code)

    assert here.summary().cells[0].state is State.OK


@pytest.mark.parametrize(
    ("changes", "state", "reason"),
    [
        ({"exit_code": 3}, State.CRASHED, "train.py exited with 3"),
        ({"steps": 8}, State.OK, "it made 9 steps, and the first 10 count in none"),
        ({"steps": 8, "attempts": 3}, State.OK, "it made 9 steps, and the first 10 count in none"),
        ({"world_size": 4}, State.OK, "2 of 4 ranks wrote here (0, 1 on here)"),
        ({"exit_code": 137}, State.KILLED, "train.py was ended by SIGKILL"),
    ],
)
def test_how_a_job_ended_and_why_it_has_no_figures(
    tmp_path: Path, changes: dict[str, object], state: State, reason: str
) -> None:
    here = _Job(tmp_path)
    here.run(**changes)  # type: ignore[arg-type]

    (cell,) = here.summary().cells
    assert cell.state is state
    assert reason in cell.reason


def test_attempts_of_a_job_are_launches_of_its_cell(tmp_path: Path) -> None:
    here = _Job(tmp_path)
    write_job(tmp_path, job(2, 200), 0)
    write_job(tmp_path, job(2, 300, lambda _, step: 4.0), 1)
    here.follow()

    (cell,) = here.summary().cells
    assert (cell.state, here.launches()) == (State.OK, [2])
    assert cell.figures is not None
    assert cell.figures.step_mean == here.report.step_seconds, (
        "of the last attempt, as its findings"
    )
    assert cell.watched is not None
    assert cell.watched.restarts == 1


def test_attempts_that_were_too_short_are_left_out(tmp_path: Path) -> None:
    here = _Job(tmp_path)
    write_job(tmp_path, job(2, 200), 0)
    write_job(tmp_path, job(2, 8), 1)
    here.follow()

    (cell,) = here.summary().cells
    assert (cell.state, here.launches()) == (State.OK, [1])


def _late(milliseconds: int) -> Extra:
    """All ranks, in all steps."""

    def late(rank: int, step: int) -> float:
        del rank, step
        return float(milliseconds)

    return late


def test_of_many_attempts_the_last_ones_are_kept(tmp_path: Path) -> None:
    here = _Job(tmp_path)
    for attempt in range(8):
        write_job(tmp_path, job(2, 200, _late(attempt)), attempt)
    here.follow()

    (cell,) = load_run(tmp_path).cells
    assert len(cell.launches) == 5
    steps = [payload(record, TrainingResult).steps for record in cell.launches]
    means = [one.seconds.mean for one in steps if one is not None]
    assert means == pytest.approx([0.016, 0.017, 0.018, 0.019, 0.020], rel=0.05)


def test_attempts_with_another_number_of_ranks_are_another_cell(tmp_path: Path) -> None:
    here = _Job(tmp_path)
    write_job(tmp_path, job(2, 200), 0)
    write_job(tmp_path, job(3, 200), 1)
    here.follow()

    cells = here.summary().cells
    assert [(cell.cell.world_size, cell.state) for cell in cells] == [(2, State.OK), (3, State.OK)]


def test_a_job_that_failed_keeps_its_figures_until_it_is_run_again(tmp_path: Path) -> None:
    here = _Job(tmp_path)
    here.run(exit_code=3)
    (failed,) = here.summary().cells
    assert (failed.state, here.report.state) == (State.CRASHED, JobState.FAILED)
    assert failed.figures is not None
    assert failed.figures.step_mean == here.report.step_seconds
    write_job(tmp_path, job(2, 200), 1)
    here.follow(is_added=True)

    (cell,) = here.summary().cells
    assert (cell.state, here.launches()) == (State.OK, [1])
    assert [path.name for path in (tmp_path / "quarantine").iterdir()] == [
        f"{cell.cell.id}-launch-0-replaced-0"
    ]


def test_a_run_that_is_added_and_too_short_leaves_the_figures_of_the_others(
    tmp_path: Path,
) -> None:
    here = _Job(tmp_path)
    here.run()
    write_job(tmp_path, job(2, 200), 1)
    here.follow(is_added=True)
    write_job(tmp_path, job(2, 8), 2)
    here.follow(is_added=True)

    (cell,) = here.summary().cells
    assert (cell.state, here.launches()) == (State.OK, [2])


def test_a_job_that_failed_after_a_restart_says_so(tmp_path: Path) -> None:
    here = _Job(tmp_path)
    here.run(exit_code=3, attempts=2)

    (cell,) = here.summary().cells
    assert (cell.state, cell.reason) == (State.CRASHED, "launch 2: train.py exited with 3")


def test_a_program_without_ranks_leaves_no_run(tmp_path: Path) -> None:
    watched = WatchedJob(tmp_path, _COMMAND, _STARTED)

    with pytest.raises(StoreError, match="no rank reported"):
        write_run(tmp_path, watched, watched.report(_STARTED), environment())
    assert not (tmp_path / "experiment.json").exists()


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("./run",),
        ("python", "x" * 20_000),
        ("python", "\udcff.py", "'"),
        ("a", "--token", "s3"),
    ],
)
def test_any_command_can_be_watched(command: tuple[str, ...]) -> None:
    WatchedProgram(command).cell(2)
