"""Sweeps and checks over the nodes of a real Slurm and a real Ray, each node a network namespace:
one command on the first node."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest

from tests import network, slurm
from tests.integration.conftest import Program
from tests.integration.test_nodes import END_SECONDS, config, wait_for
from tests.ray_cluster import ray_cluster

pytestmark = pytest.mark.integration

ENGINES = ("slurm", "ray")
_AGENT = "torchscale.features.cluster.engines.agent"


class RealEngine(Protocol):
    """A cluster of an engine."""

    @property
    def nodes(self) -> tuple[network.Node, ...]:
        """Its nodes; commands run on the first."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Of commands."""

    @property
    def links(self) -> network.Cluster:
        """Which can be cut."""

    def argv(self, node: network.Node, *command: str) -> list[str]:
        """A command on a node."""

    def logs(self) -> str:
        """The last lines of its daemons."""


@dataclass
class OnEngine:
    """Runs torchscale on the first node of a cluster."""

    name: str
    program: Program
    cluster: RealEngine
    running: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        """Start a command: in an allocation of all nodes, or as a driver of the cluster."""
        before = []
        if self.name == "slurm":
            before = ["salloc", "--no-kill", f"--nodes={len(self.cluster.nodes)}"]
        argv = self.cluster.argv(self.cluster.nodes[0], *before, *self.program.argv(*arguments))
        with self.output_path.open("ab") as output, self.json_path.open("wb") as result:
            self.running = subprocess.Popen(
                argv,
                cwd=self.program.directory,
                env={**self.cluster.environment, "TORCHSCALE_TEST_HOLD": str(self.hold)},
                stdin=subprocess.DEVNULL,
                stdout=result,
                stderr=output,
                start_new_session=True,
            )

    def end(self) -> int:
        """The exit code, once it has ended by itself.

        Raises:
            AssertionError: it does not; with all output.
        """
        assert self.running is not None
        try:
            return self.running.wait(END_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise AssertionError(f"{error}\n{self.output}") from error

    def run(self, *arguments: str) -> int:
        """Run to the end. Returns the exit code."""
        self.start(*arguments)
        return self.end()

    @property
    def output_path(self) -> Path:
        """Standard error of all commands."""
        return self.program.directory / "stderr.txt"

    @property
    def json_path(self) -> Path:
        """Standard output of the last command."""
        return self.program.directory / "stdout.txt"

    @property
    def output(self) -> str:
        """What commands and daemons have said so far."""
        return f"{self.output_path.read_text()}\n{self.cluster.logs()[-2000:]}"

    @property
    def hold(self) -> Path:
        """While this file exists, launches stop at a step."""
        return self.program.directory / "hold"

    def hold_launch(self, *ranks: int) -> None:
        """Wait until the ranks of a launch have stopped at that step."""
        try:
            wait_for(
                lambda: all((self.hold.parent / f"held-{rank}").exists() for rank in ranks),
                "the held step",
            )
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}") from error

    def agents(self, number: int) -> list[psutil.Process]:
        """The agents of a node."""
        return [
            process
            for process in network.processes(self.cluster.nodes[number])
            if _AGENT in _command(process) and "srun" not in _command(process)
        ]

    def leader(self) -> psutil.Process:
        """The process that leads."""
        return next(
            process
            for process in network.processes(self.cluster.nodes[0])
            if _command(process)[1:3] == ["-m", "torchscale"]
        )

    def states(self) -> dict[int, str]:
        """World size → state, with one cell a world size."""
        folder = self.program.directory / "results/run/cells"
        sizes = {
            path.parent.name: json.loads(path.read_text())["world_size"]
            for path in folder.glob("*/cell.json")
        }
        return {
            sizes[name.partition("/")[0]]: record["state"]
            for name, record in self.program.records().items()
        }


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@contextmanager
def on_engine(name: str, program: Program, nodes: int = 2, **options: Any) -> Iterator[OnEngine]:
    """The program on a cluster; nothing of either may run afterwards."""
    make = slurm.slurm if name == "slurm" else ray_cluster
    with make(nodes, extra_env=program.env(), **options) as cluster:
        engine = OnEngine(name, program, cluster)
        try:
            yield engine
        finally:
            if engine.running is not None and engine.running.poll() is None:
                engine.running.kill()
                engine.running.wait(END_SECONDS)
    assert program.leftovers() == []


def listening(processes: list[psutil.Process]) -> list[Any]:
    """The TCP ports on which these processes listen."""
    return [
        connection.laddr
        for process in processes
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    ]


def blocked_signals(process: psutil.Process) -> int:
    """A bit for each signal that the process takes later: a worker of Ray takes no Ctrl-C."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if "SigBlk" in line), 16)


def on_two(program: Program, **content: Any) -> str:
    """A config of a cell on one node, and one on two."""
    launch = {"devices_per_node": 1, "threads_per_rank": 1, **content.pop("launch", {})}
    return config(program, launch=launch, **content)


@pytest.mark.parametrize("name", ENGINES)
def test_a_sweep_survives_the_end_of_an_agent_and_listens_nowhere(
    name: str, program: Program
) -> None:
    """The launch over both nodes loses one; the same command measures it again."""
    with on_engine(name, program) as engine:
        engine.hold.touch()
        file = on_two(program, models=["held:build"], gpu_counts=[1, 2])
        engine.start("benchmark", file, "--output-dir", "results/run")
        engine.hold_launch(0)
        agents = [*engine.agents(0), *engine.agents(1)]
        assert listening([engine.leader(), *agents]) == []
        assert [(agent.nice(), blocked_signals(agent)) for agent in agents] == [(0, 0), (0, 0)]
        for path in engine.hold.parent.glob("held-*"):
            path.unlink()
        engine.hold.unlink()
        wait_for(lambda: 1 in engine.states(), "the first record")
        engine.hold.touch()
        engine.hold_launch(0, 1)
        (agent,) = engine.agents(1)
        agent.kill()
        wait_for(lambda: engine.states().get(2) is not None, "the record of the lost launch")
        engine.hold.unlink()
        assert engine.end() == 1, engine.output
        assert engine.states() == {1: "ok", 2: "node_lost"}, engine.output
        assert engine.run("benchmark", file, "--output-dir", "results/run") == 0, engine.output
        assert engine.states() == {1: "ok", 2: "ok"}
        record = next(record for record in program.records().values() if len(record["nodes"]) == 2)
        assert [(node["hostname"], node["first_rank"]) for node in record["nodes"]] == [
            ("n0", 0),
            ("n1", 1),
        ]
        assert [rank["hostname"] for rank in record["payload"]["ranks"]] == ["n0", "n1"]
        (steps,) = program.directory.glob("results/run/cells/*/launch-0/steps-rank-1.jsonl")
        assert steps.stat().st_size > 0


@pytest.mark.campaign
@pytest.mark.parametrize("how", ["killed", "cut"])
@pytest.mark.parametrize("name", ENGINES)
def test_a_sweep_goes_on_with_the_nodes_that_are_left(
    name: str, how: str, program: Program
) -> None:
    """Of three nodes the last is lost in the middle of a launch over all."""
    with on_engine(name, program, nodes=3) as engine:
        engine.hold.touch()
        file = on_two(program, models=["held:build"], gpu_counts=[3, 2])
        engine.start("benchmark", file, "--output-dir", "results/run")
        engine.hold_launch(0, 1, 2)
        lost = engine.cluster.nodes[2]
        if how == "cut":
            engine.cluster.links.cut(lost)
        else:
            network.kill(lost)
        wait_for(lambda: engine.states().get(3) is not None, "the record of the lost launch")
        engine.hold.unlink()
        assert engine.end() == 1, engine.output
        assert engine.states() == {3: "node_lost", 2: "ok"}, engine.output
        network.kill(lost)


@pytest.mark.campaign
@pytest.mark.parametrize("name", ENGINES)
def test_ctrl_c_stops_a_sweep_in_order_and_the_same_command_continues(
    name: str, program: Program
) -> None:
    with on_engine(name, program) as engine:
        engine.hold.touch()
        file = on_two(program, models=["held:build"], gpu_counts=[2])
        engine.start("benchmark", file, "--output-dir", "results/run")
        engine.hold_launch(0, 1)
        engine.leader().send_signal(signal.SIGINT)
        assert engine.end() != 0
        assert engine.states() == {2: "interrupted"}, engine.output
        engine.hold.unlink()
        assert engine.run("benchmark", file, "--output-dir", "results/run") == 0, engine.output
        assert engine.states() == {2: "ok"}


@pytest.mark.campaign
@pytest.mark.parametrize("name", ENGINES)
def test_checks_and_collectives_of_four_nodes(name: str, program: Program) -> None:
    with on_engine(name, program, nodes=4) as engine:
        engine.run("validate", "--pairwise", "--json", "--output-dir", "results")
        fleet = json.loads(engine.json_path.read_text())
        assert [node["hostname"] for node in fleet["nodes"]] == ["n0", "n1", "n2", "n3"]
        assert (fleet["collective"]["world_size"], fleet["collective"]["error"]) == (4, None)
        assert len(fleet["pairwise"]["pairs"]) == 6
        done = engine.run(
            "measure",
            "collectives",
            "--op",
            "all_reduce",
            "--max-bytes",
            "64K",
            "--json",
            "--launch.devices_per_node=1",
            "--launch.threads_per_rank=1",
        )
        assert done == 0, engine.output
        (cell,) = json.loads(engine.json_path.read_text())
        assert (cell["cell"]["world_size"], cell["state"]) == (4, "ok")


@pytest.mark.campaign
def test_nodes_of_slurm_share_no_directory(program: Program) -> None:
    """The other node sees an empty one in its place: config, orders and files go over the steps."""
    with on_engine("slurm", program, private=program.directory) as engine:
        file = on_two(program, gpu_counts=[1, 2])
        assert engine.run("benchmark", file, "--output-dir", "results/run") == 0, engine.output
        assert engine.states() == {1: "ok", 2: "ok"}
        (steps,) = program.directory.glob("results/run/cells/*/launch-0/steps-rank-1.jsonl")
        assert steps.stat().st_size > 0


def test_a_ray_cluster_that_is_too_small_says_what_it_has(program: Program) -> None:
    with on_engine("ray", program, nodes=1) as engine:
        file = on_two(program, gpu_counts=[1])
        assert engine.run("benchmark", file, "--nnodes", "2") == 2
        assert "the Ray cluster has 1 node" in engine.output_path.read_text()
        assert engine.run("benchmark", file, "--output-dir", "results/run") == 0, engine.output
        assert engine.states() == {1: "ok"}
