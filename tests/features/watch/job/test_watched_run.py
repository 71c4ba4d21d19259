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
from torchscale.features.watch.job.job import WatchedJob
from torchscale.features.watch.job.runs import begin_run
from torchscale.features.watch.job.watched_run import WatchedRun
from torchscale.results.details import read_details
from torchscale.schema.launch.record import payload
from torchscale.schema.launch.steps import StopRule
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.profiles.finding import FindingKind
from torchscale.schema.state import State
from torchscale.store.run_folder import RunFolder, load_run

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

    def follow(self, exit_code: int | None = 0, *, is_added: bool = False) -> RunFolder:
        """Read the attempts that are there; with ``is_added`` those of another run of the command."""
        past = begin_run(self.directory, _STARTED, starts_program=False)
        assert is_added == (len(past.runs) > 1)
        run = WatchedRun(self.command)
        watched = WatchedJob(self.directory, self.command, _STARTED, past=past, on_steps=run.take)
        watched.advance()
        watched.judge()
        watched.close(_STARTED + 60)
        report = watched.report(_STARTED + 60, exit_code)
        return run.write(self.directory, watched, report, environment())

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
    assert 100 <= figures.measured_steps <= 190
    assert figures.step_mean == pytest.approx(0.013, rel=0.1)
    assert figures.samples_per_second is None
    assert figures.phases.compute == pytest.approx(0.011, rel=0.1)
    assert figures.phases.forward is None
    assert cell.flops_unknown


def test_the_slow_rank_of_a_job_is_found_in_its_run(tmp_path: Path) -> None:
    here = _Job(tmp_path)
    here.run(extra=lambda rank, _: 4.0 * rank)

    (cell,) = here.summary().cells
    assert cell.diagnosis is not None
    (found,) = [one for one in cell.diagnosis.findings if one.kind is FindingKind.STRAGGLER]
    assert found.rank == 1
    assert found.cost_seconds == pytest.approx(0.004, rel=0.2)
    assert (tmp_path / "cells" / cell.cell.id / "launch-0" / "watch" / "watch.json").is_file()


@pytest.mark.parametrize("exit_code", [0, None, 143, 130])
def test_what_a_job_did_until_it_was_ended_counts(tmp_path: Path, exit_code: int | None) -> None:
    here = _Job(tmp_path)
    here.run(exit_code=exit_code)

    assert here.summary().cells[0].state is State.OK


@pytest.mark.parametrize(
    ("changes", "state", "reason"),
    [
        ({"exit_code": 3}, State.CRASHED, "train.py exited with 3"),
        ({"steps": 8}, State.INVALID, "it made 9 steps, too few"),
        ({"steps": 8, "attempts": 3}, State.INVALID, "none of its 3 attempts made enough steps"),
        ({"world_size": 4}, State.INVALID, "2 of 4 ranks wrote here (0, 1 on here)"),
    ],
)
def test_a_job_without_figures_says_why(
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
    folder = here.follow()

    (cell,) = here.summary().cells
    assert (cell.state, here.launches()) == (State.OK, [2])
    assert cell.figures is not None
    assert cell.figures.step_mean == pytest.approx(0.015, rel=0.1)
    details = read_details(tmp_path, folder.experiment, [cell.cell])
    watched = details[cell.cell.id].watched
    assert watched is not None
    assert watched.restarts == 1


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


def test_a_job_that_failed_has_no_figures_until_it_is_run_again(tmp_path: Path) -> None:
    here = _Job(tmp_path)
    here.run(exit_code=3)
    assert here.summary().cells[0].state is State.CRASHED
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
    run = WatchedRun(_COMMAND)
    watched = WatchedJob(tmp_path, _COMMAND, _STARTED)

    with pytest.raises(StoreError, match="no rank reported"):
        run.write(tmp_path, watched, watched.report(_STARTED), environment())
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
    WatchedRun(command)
