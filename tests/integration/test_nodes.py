"""Sweeps over several nodes: the program on every node of a cluster of network namespaces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import network
from tests.integration.conftest import FAST, Program

pytestmark = pytest.mark.integration

TOKEN = "correct horse battery staple"  # noqa: S105 - of these tests
PORT = 29517
END_SECONDS = 120


@dataclass(frozen=True)
class Started:
    """The program on a node."""

    process: subprocess.Popen[bytes]
    path: Path

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self.path.read_text()

    def end(self, seconds: float = END_SECONDS) -> int:
        """Its exit code, once it has ended by itself."""
        return self.process.wait(timeout=seconds)


class NodesOfProgram:
    """Runs torchscale on the nodes of a cluster; only node 0 has the results directory."""

    def __init__(self, program: Program, cluster: network.Cluster) -> None:
        self.program, self.cluster = program, cluster
        self._running: list[Started] = []

    @property
    def master(self) -> str:
        """``--master`` of every node."""
        return f"{self.cluster.nodes[0].address}:{PORT}"

    def start(
        self, number: int, config: str, *arguments: str, nodes: int | None = None, **variables: str
    ) -> Started:
        """Start a sweep's node ``number``, in a directory of its own."""
        node = self.cluster.nodes[number]
        directory = self.program.directory / node.hostname
        (directory / "tmp").mkdir(parents=True, exist_ok=True)
        count = len(self.cluster.nodes) if nodes is None else nodes
        options = ["--nnodes", str(count), "--node-rank", str(number), "--master", self.master]
        argv = self.program.argv(
            "benchmark", str(self.program.directory / config), *options, *arguments
        )
        env = {
            **self.program.env(),
            "TORCHSCALE_TOKEN": TOKEN,
            "TMPDIR": str(directory / "tmp"),
            "TORCHSCALE_TEST_HOLD": str(self.hold),
            **variables,
        }
        path = directory / f"output-{len(self._running)}.txt"
        with path.open("w") as output:
            process = subprocess.Popen(
                node.argv(*argv), cwd=directory, env=env, stdout=output, stderr=output
            )
        started = Started(process, path)
        self._running.append(started)
        return started

    @property
    def hold(self) -> Path:
        """While this file exists, launches stop at a step."""
        return self.program.directory / "hold"

    def hold_launch(self, *ranks: int) -> None:
        """Wait until the ranks of a launch have stopped at that step."""
        wait_for(
            lambda: all((self.hold.parent / f"held-{rank}").exists() for rank in ranks),
            "the held step",
        )

    def records(self) -> dict[str, dict[str, Any]]:
        """Of node 0: ``<cell-id>/launch-K`` → content."""
        return self.program.records("n0/results/run")

    def by_size(self) -> dict[int, dict[str, Any]]:
        """Of node 0: world size → record, with one cell a world size."""
        folder = self.program.directory / "n0/results/run/cells"
        sizes = {
            path.parent.name: json.loads(path.read_text())["world_size"]
            for path in folder.glob("*/cell.json")
        }
        return {sizes[name.partition("/")[0]]: record for name, record in self.records().items()}

    def end(self) -> None:
        """End what still runs."""
        for started in self._running:
            if started.process.poll() is None:
                started.process.kill()
            started.process.wait(timeout=END_SECONDS)


def wait_for(condition: Callable[[], bool], what: str, seconds: float = END_SECONDS) -> None:
    """Wait until a condition is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.05)


@pytest.fixture
def two_nodes(program: Program) -> Iterator[NodesOfProgram]:
    """The program on two nodes; nothing of it may run afterwards."""
    with network.cluster(2) as cluster:
        nodes = NodesOfProgram(program, cluster)
        try:
            yield nodes
        finally:
            nodes.end()
    assert program.leftovers() == []


def config(program: Program, **content: Any) -> str:
    """A config of one tiny model at one and two ranks, and bounds that fit a test."""
    launch = {
        "join_timeout_seconds": 60.0,
        "node_timeout_seconds": 6.0,
        **content.pop("launch", {}),
    }
    defaults: dict[str, Any] = {
        "models": ["tiny-decoder"],
        "gpu_counts": [1, 2],
        "batch_sizes": [2],
    }
    return program.config(**{**defaults, "launch": launch, **content})


def check_folder(nodes: NodesOfProgram) -> None:
    """A complete sweep over one and two nodes: all of it is on node 0, and every rank says where it
    ran."""
    records = nodes.by_size()
    assert [records[size]["state"] for size in (1, 2)] == ["ok", "ok"]
    ranks = records[2]["payload"]["ranks"]
    assert [(rank["hostname"], rank["node_rank"], rank["local_rank"]) for rank in ranks] == [
        ("n0", 0, 0),
        ("n1", 1, 0),
    ]
    assert [(node["hostname"], node["first_rank"]) for node in records[2]["nodes"]] == [
        ("n0", 0),
        ("n1", 1),
    ]
    (steps,) = (nodes.program.directory / "n0").rglob("steps-rank-1.jsonl")
    assert steps.stat().st_size > 0
    assert not (nodes.program.directory / "n1/results").exists()


@pytest.mark.campaign
def test_a_sweep_over_two_nodes_ends_in_one_folder(two_nodes: NodesOfProgram) -> None:
    name = config(two_nodes.program)
    first, second = two_nodes.start(0, name), two_nodes.start(1, name)
    assert (first.end(), second.end()) == (0, 0), first.output + second.output
    check_folder(two_nodes)
    assert list((two_nodes.program.directory / "n1/tmp").glob("torchscale*")) == []


LOST_SECONDS = 60
"""For a lost node to end everything: the bound on its silence (6 s), the end of processes, a busy
machine."""


def start_held(nodes: NodesOfProgram, **content: Any) -> tuple[Started, Started]:
    """Both nodes in the middle of a launch over both; a cell of one rank would come after it."""
    nodes.hold.touch()
    name = config(nodes.program, models=["held:build"], **{"gpu_counts": [2, 1], **content})
    first, second = nodes.start(0, name), nodes.start(1, name)
    nodes.hold_launch(0, 1)
    return first, second


def test_a_node_that_is_killed_loses_its_cell_and_the_sweep_goes_on(
    two_nodes: NodesOfProgram,
) -> None:
    """The cell of one node, which comes last, is measured."""
    lose_a_node(two_nodes)


@pytest.mark.campaign
def test_the_same_commands_measure_what_a_lost_node_cost(two_nodes: NodesOfProgram) -> None:
    """As a requeued job does in test_slurm.py."""
    lose_a_node(two_nodes)
    again, second = two_nodes.start(0, "config.json"), two_nodes.start(1, "config.json")
    assert (again.end(), second.end()) == (0, 0), again.output + second.output
    assert "1 done before" in again.output
    check_folder(two_nodes)


def lose_a_node(two_nodes: NodesOfProgram) -> None:
    """A sweep whose second node is killed in the middle of a launch over both."""
    first, second = start_held(two_nodes)
    second.process.kill()
    wait_for(lambda: "node_lost" in first.output, "the end of the cell", LOST_SECONDS)
    two_nodes.hold.unlink()
    assert first.end() == 1, first.output
    assert "node 1 (n1) was lost: " in first.output
    records = two_nodes.by_size()
    assert (records[2]["state"], records[1]["state"]) == ("node_lost", "ok")
    assert records[2]["reason"].startswith("node 1 (n1): ")
    assert two_nodes.program.leftovers() == []


@pytest.mark.campaign
def test_a_link_that_goes_down_loses_the_node(two_nodes: NodesOfProgram) -> None:
    first, second = start_held(two_nodes, gpu_counts=[2])
    two_nodes.cluster.cut(two_nodes.cluster.nodes[1])
    assert first.end(LOST_SECONDS) == 1, first.output
    record = two_nodes.by_size()[2]
    assert (record["state"], record["reason"]) == ("node_lost", "node 1 (n1): silent for 6 s")
    assert second.end(LOST_SECONDS) == 3
    assert (
        f"the connection to node 0 at {two_nodes.master} was lost: silent for 6 s" in second.output
    )


@pytest.mark.campaign
def test_an_interrupt_of_the_first_node_ends_the_sweep_everywhere(
    two_nodes: NodesOfProgram,
) -> None:
    first, second = start_held(two_nodes)
    first.process.send_signal(signal.SIGINT)
    assert (first.end(LOST_SECONDS), second.end(LOST_SECONDS)) == (130, 130), first.output
    assert two_nodes.by_size()[2]["state"] == "interrupted"


@pytest.mark.campaign
def test_an_interrupt_of_another_node_loses_it(two_nodes: NodesOfProgram) -> None:
    first, second = start_held(two_nodes, gpu_counts=[2])
    second.process.send_signal(signal.SIGINT)
    assert (first.end(LOST_SECONDS), second.end(LOST_SECONDS)) == (1, 130), first.output
    assert two_nodes.by_size()[2]["reason"] == "node 1 (n1): it was interrupted"


@pytest.mark.campaign
def test_a_killed_rank_of_another_node_is_named(two_nodes: NodesOfProgram) -> None:
    """The node is not lost: its launch has failed, as on one node."""
    first, second = start_held(two_nodes, gpu_counts=[2])
    children = psutil.Process(second.process.pid).children(recursive=True)
    (rank,) = [process for process in children if process.environ().get("RANK") == "1"]
    rank.kill()
    assert (first.end(LOST_SECONDS), second.end(LOST_SECONDS)) == (1, 1), first.output
    record = two_nodes.by_size()[2]
    assert record["state"] == "killed"
    assert record["reason"].startswith("rank 1 was killed by SIGKILL")


def test_the_rank_of_another_node_that_hangs_is_named(two_nodes: NodesOfProgram) -> None:
    """All ranks are asked while all still wait: the first that is ended would make the others
    raise."""
    first, second, autopsy = hang(
        two_nodes, {"name": "faulty:build", "fault": "hang", "rank": 1, "step": 12}
    )
    assert (first.end(), second.end()) == (1, 1), first.output + second.output
    (verdict,) = autopsy()
    assert (verdict["cause"], verdict["ranks"]) == ("rank_missing", [1])
    assert verdict["confidence"] == "high"
    assert "rank 1 never called it; it is in faulty.py:" in verdict["summary"]
    assert verdict["summary"].endswith("rank 1 ran on n1")
    assert [position["condition"] for position in verdict["positions"]] == ["running", "running"]


@pytest.mark.campaign
def test_a_rank_of_another_node_that_is_stopped_is_named(two_nodes: NodesOfProgram) -> None:
    two_nodes.hold.touch()
    first, second, autopsy = hang(two_nodes, {"name": "held:build"})
    two_nodes.hold_launch(0, 1)
    children = psutil.Process(second.process.pid).children(recursive=True)
    (rank,) = [process for process in children if process.environ().get("RANK") == "1"]
    rank.suspend()
    two_nodes.hold.unlink()
    assert (first.end(), second.end()) == (1, 1), first.output + second.output
    (verdict,) = autopsy()
    assert (verdict["cause"], verdict["ranks"], verdict["confidence"]) == (
        "rank_stopped",
        [1],
        "high",
    )


def hang(
    nodes: NodesOfProgram, model: dict[str, Any]
) -> tuple[Started, Started, Callable[[], list[dict[str, Any]]]]:
    """A launch of both nodes that makes no progress for twenty seconds (on a busy machine imports
    take more than ten); the function gives its record's autopsy."""
    name = config(
        nodes.program, models=model, gpu_counts=[2], launch={"stall_timeout_seconds": 20.0}
    )
    first, second = nodes.start(0, name), nodes.start(1, name)
    return first, second, lambda: [record["autopsy"] for record in nodes.records().values()]


@pytest.mark.campaign
def test_a_node_that_comes_late_takes_part(two_nodes: NodesOfProgram) -> None:
    """It comes when the first node has given it up, and the launch that needs it has been put
    off."""
    two_nodes.hold.touch()
    launch = {"join_timeout_seconds": 1.0}
    name = config(two_nodes.program, models=["held:build"], gpu_counts=[2, 1], launch=launch)
    first = two_nodes.start(0, name)
    two_nodes.hold_launch(0)
    second = two_nodes.start(1, name)
    wait_for(lambda: "node 1 of 2" in second.output, "the second node")
    two_nodes.hold.unlink()
    assert (first.end(), second.end()) == (0, 0), first.output + second.output
    assert "node 1 did not join within 1 s" in first.output
    assert "node 1 (n1) joined" in first.output
    assert {size: record["state"] for size, record in two_nodes.by_size().items()} == {
        1: "ok",
        2: "ok",
    }


@pytest.mark.campaign
def test_a_node_that_never_comes_is_named_and_the_same_commands_continue(
    two_nodes: NodesOfProgram,
) -> None:
    first = two_nodes.start(0, config(two_nodes.program, launch={"join_timeout_seconds": 1.0}))
    assert first.end() == 1, first.output
    assert "1 cell could not be measured for lack of nodes: node 1 did not join" in first.output
    assert {size: record["state"] for size, record in two_nodes.by_size().items()} == {1: "ok"}
    name = config(two_nodes.program)
    first, second = two_nodes.start(0, name), two_nodes.start(1, name)
    assert (first.end(), second.end()) == (0, 0), first.output + second.output
    assert "1 done before" in first.output
    assert {size: record["state"] for size, record in two_nodes.by_size().items()} == {
        1: "ok",
        2: "ok",
    }


def test_a_node_with_another_config_is_named_and_nothing_starts(two_nodes: NodesOfProgram) -> None:
    name = config(two_nodes.program)
    first, second = two_nodes.start(0, name), two_nodes.start(1, name, "--batch-size", "4")
    assert (first.end(), second.end()) == (3, 3), first.output + second.output
    assert "nothing was started: node 1 (n1) differs in batch_sizes: [4], [2] on n0" in first.output
    assert "batch_sizes: [4], [2] on n0" in second.output
    assert two_nodes.records() == {}


@pytest.mark.campaign
def test_a_node_with_another_version_is_named(two_nodes: NodesOfProgram) -> None:
    """Its version says so: another one with the same code."""
    patched = two_nodes.program.directory / "patched"
    patched.mkdir()
    (patched / "sitecustomize.py").write_text(
        "import torchscale.version\ntorchscale.version.__version__ = '0.0.1'\n"
    )
    name = config(two_nodes.program)
    path = os.pathsep.join([str(patched), two_nodes.program.env()["PYTHONPATH"]])
    first, second = two_nodes.start(0, name), two_nodes.start(1, name, PYTHONPATH=path)
    assert (first.end(), second.end()) == (3, 3), first.output + second.output
    assert "node 1 (n1): torchscale: 0.0.1" in first.output


@pytest.mark.campaign
def test_two_sweeps_on_one_port_and_a_wrong_address_are_errors(two_nodes: NodesOfProgram) -> None:
    name = config(two_nodes.program)
    first = two_nodes.start(0, name, "--output-dir", "one")
    wait_for(lambda: "Waiting for 1 other node" in first.output, "the first sweep")
    second = two_nodes.start(0, name, "--output-dir", "two")
    assert second.end() == 2
    assert f"port {PORT} cannot be used (Address already in use)" in second.output
    first.process.send_signal(signal.SIGINT)
    assert first.end() == 130
    loopback = two_nodes.start(1, name, "--master", "127.0.0.1:29500")
    assert (loopback.end(), "a loopback address" in loopback.output) == (2, True)
    elsewhere = two_nodes.start(0, name, "--master", "10.77.0.2:29500")
    assert (elsewhere.end(), "no address of this machine" in elsewhere.output) == (2, True)


@pytest.mark.campaign
def test_a_sweep_over_three_nodes(program: Program) -> None:
    with network.cluster(3) as cluster:
        nodes = NodesOfProgram(program, cluster)
        try:
            name = config(program, gpu_counts=[1, 2, 3])
            started = [nodes.start(number, name) for number in range(3)]
            assert [one.end() for one in started] == [0, 0, 0], "".join(
                one.output for one in started
            )
        finally:
            nodes.end()
    records = nodes.by_size()
    assert {size: record["state"] for size, record in records.items()} == {
        1: "ok",
        2: "ok",
        3: "ok",
    }
    for size, record in records.items():
        ranks = record["payload"]["ranks"]
        assert [(rank["rank"], rank["hostname"]) for rank in ranks] == [
            (rank, f"n{rank}") for rank in range(size)
        ]
    assert program.leftovers() == []


@pytest.mark.campaign
@pytest.mark.parametrize(("rate", "bytes_per_second"), [("1gbit", 125e6), ("100mbit", 12.5e6)])
def test_a_shaped_link_shows_in_collectives_efficiency_and_diagnosis(
    two_nodes: NodesOfProgram, rate: str, bytes_per_second: float
) -> None:
    two_nodes.cluster.shape(two_nodes.cluster.nodes[1], rate)
    name = config(
        two_nodes.program,
        measure=["collectives", "training"],
        collectives={
            "operations": ["all_reduce"],
            "min_bytes": 1 << 20,
            "max_bytes": 8 << 20,
            "iterations": 3,
            "warmup": 1,
        },
        benchmark={**FAST, "min_steps": 30, "max_steps": 60, "max_seconds": 20.0},
    )
    first, second = two_nodes.start(0, name), two_nodes.start(1, name)
    assert (first.end(), second.end()) == (0, 0), first.output + second.output
    report = two_nodes.program.run(
        "report", "n0/results/run", "--format", "json", "--output", "report.json"
    )
    assert report.returncode == 0, report.stderr
    document = json.loads((two_nodes.program.directory / "report.json").read_text())
    (sweep,) = document["machine"]
    assert sweep["hosts"] == ["n0", "n1"]
    (curve,) = sweep["figures"]["curves"]
    busbw = curve["points"][-1]["busbw"]
    assert 0.5 * bytes_per_second < busbw < 1.1 * bytes_per_second
    trained = {cell["cell"]["world_size"]: cell for cell in document["cells"]}
    assert trained[2]["hosts"] == ["n0", "n1"]
    if rate == "100mbit":
        assert trained[2]["efficiency"]["value"] < 0.8
        findings = {finding["kind"]: finding for finding in trained[2]["diagnosis"]["findings"]}
        assert findings["slow_link"]["hosts"] == ["n0", "n1"]
        assert "the ranks communicate between n0 and n1" in findings["slow_link"]["evidence"]
