"""Sweeps in jobs of a real Slurm of two nodes: submitted, requeued, cancelled, killed, at the time
limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests import slurm
from tests.integration.conftest import Program
from tests.integration.test_nodes import PORT, TOKEN, config, wait_for

pytestmark = pytest.mark.integration

JOB_SECONDS = 90
"""For a sweep of two short cells, or for the end of a job that is cancelled: on a busy machine."""
TIME_LIMIT_SECONDS = 60
"""Slurm counts time limits in minutes."""
_DAEMONS = ("munged", "slurmctld", "slurmscriptd", "slurmd")
_STOPPED = {"interrupted", "node_lost"}
"""Slurm sends TERM to all nodes of a job: node 0 stops by its own, or hears first that node 1 has
left."""

SUBMIT_SECONDS = 200
"""From `submit --wait` to its end: two starts of a cell of two ranks, and the requeue between
them."""

_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=sweep --nodes=2 --ntasks-per-node=1 --requeue --open-mode=append --output=job.txt
set -euo pipefail
srun --ntasks-per-node=1 --kill-on-bad-exit=1 --wait=30 {python} -m torchscale benchmark {config} \\
    --token-file token --master n0:{port} --output-dir results/run
"""


@dataclass(frozen=True)
class Jobs:
    """Jobs that run the same sweep in the same run folder: a cell that ends, then one that can be
    held at a step."""

    program: Program
    cluster: slurm.Slurm
    script: Path
    hold: Path

    def start_held(self) -> str:
        """A job in the middle of the second cell. Returns its number."""
        for path in self.hold.parent.glob("held-*"):
            path.unlink()
        self.hold.touch()
        job = self.submit()
        held = [self.hold.parent / f"held-{rank}" for rank in (0, 1)]
        self.wait_for(lambda: all(path.exists() for path in held), "the held step")
        return job

    def submit(self) -> str:
        """Submit the sweep. Returns the job's number."""
        return self.cluster.submit(self.script)

    def finish(self) -> None:
        """Submit the sweep once more, and let it end."""
        self.hold.unlink(missing_ok=True)
        job = self.submit()
        state = self.cluster.wait(job, "COMPLETED", "FAILED", "CANCELLED", seconds=JOB_SECONDS)
        assert state == "COMPLETED", self.output
        assert "1 done before" in self.output

    @property
    def output(self) -> str:
        """What the jobs have printed so far."""
        path = self.script.parent / "job.txt"
        return path.read_text() if path.exists() else ""

    def first_record(self) -> tuple[str, int]:
        """Content and time of the first cell's record, which nothing may touch again."""
        (path,) = self.program.directory.glob(
            "results/run/cells/tiny-decoder*/launch-0/record.json"
        )
        return path.read_text(), path.stat().st_mtime_ns

    def states(self) -> list[str]:
        """Of the first and the second cell."""
        records = self.program.records()
        first = [
            record["state"] for name, record in records.items() if name.startswith("tiny-decoder")
        ]
        second = [
            record["state"]
            for name, record in records.items()
            if not name.startswith("tiny-decoder")
        ]
        return [*first, *second]

    def processes(self) -> list[psutil.Process]:
        """What runs of any job; not the daemons."""
        return [
            process
            for process in self.program.leftovers()
            if not process.name().startswith(_DAEMONS)
        ]

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition is true.

        Raises:
            AssertionError: it is not within :data:`JOB_SECONDS`; with what the job and the daemons
                wrote.
        """
        try:
            wait_for(condition, what, JOB_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}\n{self.cluster.logs()}") from error


@dataclass(frozen=True)
class Submitted:
    """``torchscale submit --wait`` on the first node, of a cell of two ranks that is held at a
    step."""

    program: Program
    cluster: slurm.Slurm
    process: subprocess.Popen[bytes]

    @property
    def hold(self) -> Path:
        """While this file exists, launches stop at a step."""
        return self.program.directory / "hold"

    @property
    def state_directory(self) -> Path:
        """Script, log, secret and exit code of the job."""
        return self.program.directory / "results/run.submit"

    @property
    def job(self) -> str:
        """Its number, which is all that stdout says."""
        return (self.program.directory / "stdout.txt").read_text().strip()

    @property
    def output(self) -> str:
        """What submit, the job and the daemons have written so far."""
        paths = [
            self.program.directory / "stderr.txt",
            *sorted(self.state_directory.glob("slurm-*.out")),
        ]
        return "\n".join([*(path.read_text() for path in paths), self.cluster.logs()])

    def wait_until_held(self) -> None:
        """Wait until both ranks have stopped at the step."""
        self.wait_for(
            lambda: all((self.hold.parent / f"held-{rank}").exists() for rank in (0, 1)),
            "the held step",
        )

    def release(self, condition: Callable[[], bool], what: str) -> None:
        """Let launches go on once a condition is true."""
        self.wait_for(condition, what)
        self.hold.unlink()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition is true.

        Raises:
            AssertionError: it is not within :data:`JOB_SECONDS`, or ``submit`` has ended; with all
                output.
        """

        def reached() -> bool:
            assert self.process.poll() is None, f"submit has ended before {what}\n{self.output}"
            return condition()

        try:
            wait_for(reached, what, JOB_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}") from error

    def states(self) -> list[str]:
        """Of the launches measured so far."""
        return [record["state"] for record in self.program.records().values()]

    def end(self) -> int:
        """The exit code of ``submit``, once it has ended by itself.

        Raises:
            AssertionError: it does not; with all output.
        """
        try:
            return self.process.wait(SUBMIT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{error}\n{self.output}") from error


@contextmanager
def submitted(program: Program) -> Iterator[Submitted]:
    """Submit on a cluster of two nodes; no process may be left of either."""
    _need_root()
    hold = program.directory / "hold"
    hold.touch()
    name = config(program, models=["held:build"], gpu_counts=[2])
    with slurm.slurm(extra_env={**program.env(), "TORCHSCALE_TEST_HOLD": str(hold)}) as cluster:
        argv = program.argv("submit", name, "--nodes", "2", "--output-dir", "results/run", "--wait")
        with (
            (program.directory / "stdout.txt").open("wb") as stdout,
            (program.directory / "stderr.txt").open("wb") as stderr,
            subprocess.Popen(
                cluster.argv(cluster.nodes[0], *argv),
                cwd=program.directory,
                env=cluster.environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            ) as process,
        ):
            try:
                yield Submitted(program, cluster, process)
            finally:
                process.kill()
    assert program.leftovers() == []


def _need_root() -> None:
    if os.geteuid() != 0 and not os.environ.get("CI"):
        pytest.skip("slurmd starts jobs as their users, which root alone may do")


@pytest.fixture
def jobs(program: Program) -> Iterator[Jobs]:
    """A cluster and the sweep's script; no process may be left of either."""
    _need_root()
    hold = program.directory / "hold"
    name = config(program, models=["tiny-decoder", "held:build"], gpu_counts=[2])
    token = program.directory / "token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    with slurm.slurm(extra_env={**program.env(), "TORCHSCALE_TEST_HOLD": str(hold)}) as cluster:
        script = program.directory / "sweep.sh"
        script.write_text(_SCRIPT.format(python=sys.executable, config=name, port=PORT))
        yield Jobs(program, cluster, script, hold)
    assert program.leftovers() == []


def check_resumed(sweep: Submitted) -> None:
    """The job was stopped cleanly and queued once more, and has measured its cell then; its secret
    has gone."""
    assert sweep.end() == 0, sweep.output
    (record,) = sweep.program.records().values()
    assert record["state"] == "ok"
    ranks = record["payload"]["ranks"]
    assert [(rank["hostname"], rank["node_rank"], rank["local_rank"]) for rank in ranks] == [
        ("n0", 0, 0),
        ("n1", 1, 0),
    ]
    (steps,) = sweep.program.directory.glob("results/run/cells/*/launch-0/steps-rank-1.jsonl")
    assert steps.stat().st_size > 0
    assert sweep.cluster.restarts(sweep.job) == 1
    assert "interrupted" in sweep.output
    assert (sweep.state_directory / f"exit-{sweep.job}").read_text() == "0\n"
    assert list(sweep.state_directory.glob("token-*")) == []
    sweep.cluster.wait(sweep.job, "COMPLETED", seconds=JOB_SECONDS)
    left = [
        process for process in sweep.program.leftovers() if not process.name().startswith(_DAEMONS)
    ]
    assert left == []


def test_a_submitted_sweep_stops_at_the_signal_before_its_time_limit_and_resumes(
    program: Program,
) -> None:
    """The signal comes from here, as Slurm would send it two minutes before the limit."""
    with submitted(program) as sweep:
        sweep.wait_until_held()
        sweep.cluster.run("scancel", "--batch", "--signal=TERM", sweep.job)
        sweep.release(lambda: sweep.states() != [], "the record of the launch that was stopped")
        check_resumed(sweep)


@pytest.mark.campaign
def test_a_submitted_job_that_is_cancelled_leaves_no_process_and_the_next_one_continues(
    program: Program,
) -> None:
    with submitted(program) as sweep:
        sweep.wait_until_held()
        sweep.cluster.run("scancel", sweep.job)
        assert sweep.end() != 0, sweep.output
        assert sweep.cluster.state(sweep.job) == "CANCELLED"
        assert set(sweep.states()) <= _STOPPED
        sweep.hold.unlink()
        argv = program.argv(
            "submit", "config.json", "--nodes", "2", "--output-dir", "results/run", "--wait"
        )
        done = subprocess.run(
            sweep.cluster.argv(sweep.cluster.nodes[0], *argv),
            cwd=program.directory,
            env=sweep.cluster.environment,
            capture_output=True,
            timeout=SUBMIT_SECONDS,
            check=False,
        )
        assert done.returncode == 0, sweep.output
        assert sweep.states() == ["ok"]


@pytest.mark.campaign
def test_a_requeued_job_continues_its_sweep(jobs: Jobs) -> None:
    """What was measured before stays; the cell that was cut short is measured again."""
    job = jobs.start_held()
    before = jobs.first_record()
    jobs.cluster.run("scontrol", "requeue", job)
    jobs.wait_for(lambda: len(jobs.states()) == 2, "the record of the cell that was cut short")
    assert jobs.states()[0] == "ok"
    assert jobs.states()[1] in _STOPPED
    jobs.hold.unlink()
    assert (
        jobs.cluster.wait(job, "COMPLETED", "FAILED", "CANCELLED", seconds=JOB_SECONDS)
        == "COMPLETED"
    ), jobs.output
    assert jobs.cluster.restarts(job) == 1
    assert jobs.states() == ["ok", "ok"]
    assert jobs.first_record() == before
    assert jobs.processes() == []


@pytest.mark.campaign
def test_a_cancelled_job_leaves_no_process_and_the_next_one_continues(jobs: Jobs) -> None:
    job = jobs.start_held()
    before = jobs.first_record()
    jobs.cluster.run("scancel", job)
    jobs.cluster.wait(job, "CANCELLED", seconds=JOB_SECONDS)
    jobs.wait_for(lambda: jobs.processes() == [], "the end of all processes")
    assert jobs.states()[1] in _STOPPED
    jobs.finish()
    assert jobs.states() == ["ok", "ok"]
    assert jobs.first_record() == before


@pytest.mark.campaign
def test_a_killed_step_leaves_no_process_and_the_next_job_continues(jobs: Jobs) -> None:
    """Nothing can be written then: the cell that was cut short has no record."""
    job = jobs.start_held()
    before = jobs.first_record()
    jobs.cluster.run("scancel", "--signal=KILL", f"{job}.0")
    jobs.cluster.wait(job, "FAILED", seconds=JOB_SECONDS)
    jobs.wait_for(lambda: jobs.processes() == [], "the end of all processes")
    assert jobs.states() == ["ok"]
    jobs.finish()
    assert jobs.states() == ["ok", "ok"]
    assert jobs.first_record() == before


@pytest.mark.campaign
def test_a_time_limit_stops_the_sweep_and_the_next_job_continues(jobs: Jobs) -> None:
    job = jobs.start_held()
    before = jobs.first_record()
    jobs.cluster.run("scontrol", "update", f"JobId={job}", "TimeLimit=1")
    jobs.cluster.wait(job, "TIMEOUT", seconds=2 * TIME_LIMIT_SECONDS + JOB_SECONDS)
    jobs.wait_for(lambda: jobs.processes() == [], "the end of all processes")
    assert jobs.states()[1] in _STOPPED
    jobs.finish()
    assert jobs.states() == ["ok", "ok"]
    assert jobs.first_record() == before


_VALIDATE = """\
#!/bin/bash
#SBATCH --job-name=check --nodes=2 --ntasks-per-node=1 --output=job.txt
srun --ntasks-per-node=1 --kill-on-bad-exit=1 {python} -m torchscale validate --pairwise --json \\
    --token-file token --output-dir results > fleet.json
"""


@pytest.mark.campaign
def test_validate_in_a_step_checks_all_nodes_of_the_job(jobs: Jobs) -> None:
    """Which nodes there are, and where the first one is, comes from Slurm's variables."""
    script = jobs.program.directory / "check.sh"
    script.write_text(_VALIDATE.format(python=sys.executable))
    job = jobs.cluster.submit(script)
    state = jobs.cluster.wait(job, "COMPLETED", "FAILED", "CANCELLED", seconds=2 * JOB_SECONDS)
    text = (jobs.program.directory / "fleet.json").read_text()
    fleet = json.loads(text)  # of node 0 alone: the others print no JSON
    assert [node["hostname"] for node in fleet["nodes"]] == ["n0", "n1"], jobs.output
    assert (fleet["collective"]["world_size"], fleet["collective"]["error"]) == (2, None)
    assert fleet["pairwise"]["pairs"][0]["nodes"] == [0, 1]
    assert state == ("COMPLETED" if fleet["fit"] else "FAILED")
    assert jobs.processes() == []
