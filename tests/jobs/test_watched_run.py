"""The run folder that a watched job leaves."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.analysis.job.jobs import START_NS, Extra, job, nothing
from tests.factories import environment
from tests.jobs.folders import write_job
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.errors import StoreError
from torchscale.jobs.job import WatchedJob
from torchscale.jobs.watched_run import WatchedRun
from torchscale.schema.launch.steps import StopRule
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
        run = WatchedRun(self.command)
        watched = WatchedJob(self.directory, self.command, _STARTED, on_steps=run.take)
        for _ in range(attempts):
            watched.advance()
        watched.judge()
        report = watched.report(_STARTED + 60, exit_code)
        return run.write(self.directory, watched, report, environment())

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
        ({"attempts": 2}, State.INVALID, "started again 1 times"),
        ({"world_size": 4}, State.INVALID, "2 of 4 ranks wrote here"),
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
