"""Sweeps in jobs of a real Slurm of two nodes: requeued, cancelled, killed, at the time limit."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
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
"""Slurm sends TERM to all nodes of a job: node 0 stops by its own, or hears first that node 1 has left."""

# Names of nodes do not resolve in namespaces, so --master is given; elsewhere torchscale takes it from Slurm.
_SCRIPT = """\
#!/bin/bash
#SBATCH --job-name=sweep --nodes=2 --ntasks-per-node=1 --requeue --open-mode=append --output=job.txt
set -euo pipefail
srun --ntasks-per-node=1 --kill-on-bad-exit=1 --wait=30 {python} -m torchscale benchmark {config} \\
    --token-file token --master {address}:{port} --output-dir results/run
"""


@dataclass(frozen=True)
class Jobs:
    """Jobs that run the same sweep in the same run folder: a cell that ends, then one that can be held at a step."""

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
        (path,) = self.program.directory.glob("results/run/cells/tiny-decoder*/launch-0/record.json")
        return path.read_text(), path.stat().st_mtime_ns

    def states(self) -> list[str]:
        """Of the first and the second cell."""
        records = self.program.records()
        first = [record["state"] for name, record in records.items() if name.startswith("tiny-decoder")]
        second = [record["state"] for name, record in records.items() if not name.startswith("tiny-decoder")]
        return [*first, *second]

    def processes(self) -> list[psutil.Process]:
        """What runs of any job; not the daemons."""
        return [process for process in self.program.leftovers() if not process.name().startswith(_DAEMONS)]

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition is true.

        Raises:
            AssertionError: it is not within :data:`JOB_SECONDS`; with what the job and the daemons wrote.
        """
        try:
            wait_for(condition, what, JOB_SECONDS)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}\n{self.cluster.logs()}") from error


@pytest.fixture
def jobs(program: Program) -> Iterator[Jobs]:
    """A cluster and the sweep's script; no process may be left of either."""
    if os.geteuid() != 0:
        pytest.skip("slurmd and munged of these tests run as root")
    hold = program.directory / "hold"
    name = config(program, models=["tiny-decoder", "held:build"], gpu_counts=[2])
    token = program.directory / "token"
    token.touch(mode=0o600)
    token.write_text(TOKEN)
    with slurm.slurm(extra_env={**program.env(), "TORCHSCALE_TEST_HOLD": str(hold)}) as cluster:
        script = program.directory / "sweep.sh"
        address = cluster.nodes[0].address
        script.write_text(_SCRIPT.format(python=sys.executable, config=name, address=address, port=PORT))
        yield Jobs(program, cluster, script, hold)
    assert program.leftovers() == []


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
    assert jobs.cluster.wait(job, "COMPLETED", "FAILED", "CANCELLED", seconds=JOB_SECONDS) == "COMPLETED", jobs.output
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
