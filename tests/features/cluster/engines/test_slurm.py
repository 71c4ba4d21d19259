"""Steps of Slurm, by programs that stand in for srun and scontrol."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchscale.errors import MachineError
from torchscale.features.cluster.engines.slurm import SlurmSteps, allocated_nodes

SOON = 30.0
JOB = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[1-3]",
    "SLURM_JOB_NUM_NODES": "3",
}
SCONTROL = """#!/bin/sh
case "$*" in
  "show hostnames n[1-3]") printf 'n1\\nn2\\nn3\\n';;
  "--oneliner show nodes n[1-3]")
    echo "NodeName=n1 Arch=x86_64 NodeAddr=10.0.0.1 NodeHostName=n1"
    echo "NodeName=n2 Arch=x86_64 NodeAddr=10.0.0.2 NodeHostName=n2"
    echo "NodeName=n3 Arch=x86_64 NodeAddr=n3.invalid NodeHostName=n3";;
  *) echo "scontrol: error: $*" >&2; exit 1;;
esac
"""


class Cluster:
    """Programs of Slurm in a directory, and steps that end with the test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.made: list[SlurmSteps] = []
        self.lines: list[socket.socket] = []
        self.program("scontrol", SCONTROL)

    def program(self, name: str, text: str) -> None:
        """Write a program."""
        path = self.directory / name
        path.write_text(text)
        path.chmod(0o755)

    def srun(self, text: str) -> None:
        """What srun does."""
        self.program("srun", f"#!/bin/sh\n{text}\n")

    def steps(self, nodes: int = 3, **env: str) -> SlurmSteps:
        """Steps of the job."""
        made = SlurmSteps("sweep", nodes, {**os.environ, **JOB, **env})
        self.made.append(made)
        return made

    def open(self, steps: SlurmSteps, rank: int) -> socket.socket:
        """Start a step."""
        line = steps.open(rank)
        line.settimeout(SOON)
        self.lines.append(line)
        return line

    def said(self, steps: SlurmSteps, rank: int = 0) -> str:
        """All that a new step prints."""
        line = self.open(steps, rank)
        text = b""
        while data := line.recv(1 << 16):
            text += data
        return text.decode()


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """Programs of Slurm."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    made = Cluster(tmp_path)
    yield made
    for line in made.lines:
        line.close()
    for steps in made.made:
        steps.close()


@pytest.mark.parametrize(
    ("env", "nodes"),
    [
        (JOB, 3),
        ({}, None),
        ({"SLURM_JOB_ID": "7"}, None),
        ({"SLURM_JOB_NUM_NODES": "3"}, None),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "many"}, None),
    ],
)
def test_a_job_says_how_many_nodes_it_has(env: dict[str, str], nodes: int | None) -> None:
    assert allocated_nodes(env) == nodes


def test_the_nodes_of_the_job_have_names_and_addresses(cluster: Cluster) -> None:
    steps = cluster.steps()
    assert [(node.name, node.address) for node in steps.nodes] == [
        ("n1", "10.0.0.1"),
        ("n2", "10.0.0.2"),
        ("n3", "n3.invalid"),  # which does not resolve here, but perhaps there
    ]
    assert [node.name for node in cluster.steps(2).nodes] == ["n1", "n2"]


def test_a_controller_that_fails_is_named(cluster: Cluster) -> None:
    cluster.program("scontrol", "#!/bin/sh\necho 'Unable to contact controller' >&2; exit 1\n")
    with pytest.raises(MachineError, match="failed: Unable to contact controller"):
        cluster.steps()


def test_a_controller_that_does_not_answer_is_waited_for_in_bounds(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchscale.features.cluster.engines.slurm._ASK_SECONDS", 0.2)
    cluster.program("scontrol", "#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(MachineError, match=r"no answer within 0\.2 s"):
        cluster.steps()


def test_a_step_is_one_task_on_its_node(cluster: Cluster) -> None:
    cluster.srun('echo "$@"')
    said = cluster.said(cluster.steps(), 1).split()
    assert {"--overlap", "--nodes=1", "--ntasks=1", "--nodelist=n2", "--unbuffered"} <= set(said)
    assert f"--chdir={Path.cwd()}" in said
    assert said[-2:] == ["torchscale.features.cluster.engines.agent", "sweep"]


def test_a_step_is_spoken_to(cluster: Cluster) -> None:
    cluster.srun("cat")
    line = cluster.open(cluster.steps(), 0)
    line.sendall(b"hello")
    assert line.recv(5) == b"hello"


def test_variables_of_tasks_are_not_passed(cluster: Cluster) -> None:
    cluster.srun("env")
    of_tasks = {
        "SLURM_NTASKS": "8",
        "SLURM_CPUS_PER_TASK": "2",
        "SLURM_GPUS_PER_TASK": "1",
        "SLURM_STEP_ID": "0",
        "SRUN_CPUS_PER_TASK": "2",
    }
    said = cluster.said(cluster.steps(3, **of_tasks, MINE="1", SLURM_CONF="/etc/c"))
    names = {line.partition("=")[0] for line in said.splitlines()}
    assert {"SLURM_JOB_ID", "MINE", "SLURM_CONF", "PATH"} <= names
    assert not names & of_tasks.keys()


def test_srun_that_is_missing_is_named(cluster: Cluster) -> None:
    steps = cluster.steps(PATH=str(cluster.directory))
    with pytest.raises(MachineError, match="srun cannot be started: No such file"):
        steps.open(0)
    assert steps.why_ended(0) == ""


@pytest.mark.parametrize(
    ("srun", "why"),
    [
        (
            "echo 'srun: error: Unable to create step: Requested nodes are busy' >&2; exit 1",
            "Unable to create step: Requested nodes are busy (srun ended with 1)",
        ),
        (
            "echo 'srun: error: Invalid node name specified' >&2\n"
            "echo 'srun: STEP 7.0 ON n1 CANCELLED' >&2; exit 1",
            "Invalid node name specified (srun ended with 1)",
        ),
        (
            "echo 'srun: error: n1: task 0: Killed' >&2\n"
            "echo 'srun: launch/slurm: _step_signal: Terminating StepId=7.0' >&2; exit 137",
            "n1: task 0: Killed (srun ended with 137)",
        ),
        ("exit 0", "its step of Slurm ended"),
    ],
)
def test_what_srun_says_of_an_end(cluster: Cluster, srun: str, why: str) -> None:
    cluster.srun(srun)
    steps = cluster.steps()
    cluster.said(steps)
    assert steps.why_ended(0) == why


def test_of_a_step_that_goes_on_nothing_is_said(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchscale.features.cluster.engines.slurm._SAID_SECONDS", 0.1)
    cluster.srun("exec cat")
    steps = cluster.steps()
    cluster.open(steps, 0)
    assert steps.why_ended(0) == ""


def _pid(cluster: Cluster, steps: SlurmSteps, rank: int) -> int:
    line = cluster.open(steps, rank)
    return int(line.makefile().readline())


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_step_ends_where_its_input_has(cluster: Cluster) -> None:
    cluster.srun("trap 'echo told to' TERM; echo $$; cat")
    steps = cluster.steps()
    pid = _pid(cluster, steps, 0)
    line = cluster.lines[0]
    line.shutdown(socket.SHUT_WR)
    steps.close()
    assert _has_ended(pid)
    assert line.recv(100) == b""  # by itself


def test_a_step_that_ignores_all_is_killed_with_the_others(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchscale.features.cluster.engines.slurm._END_SECONDS", 1.0)
    cluster.srun("trap '' TERM; echo $$; while :; do read line || sleep 0.05; done")
    steps = cluster.steps()
    pids = [_pid(cluster, steps, rank) for rank in range(3)]
    begun = time.monotonic()
    steps.close()
    assert time.monotonic() - begun < 4.5  # 2 s of waiting for all, not for each
    assert all(map(_has_ended, pids))


def test_a_new_step_ends_the_one_before(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchscale.features.cluster.engines.slurm._END_SECONDS", 0.2)
    cluster.srun("echo $$; exec sleep 60")
    steps = cluster.steps()
    first = _pid(cluster, steps, 0)
    second = _pid(cluster, steps, 0)
    assert _has_ended(first)
    assert not _has_ended(second)


def test_no_file_is_left(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    cluster.srun("exit 0")
    steps = cluster.steps()
    cluster.said(steps)
    assert list(place.iterdir())
    steps.close()
    assert not list(place.iterdir())
