"""Sweeps over several nodes: the program on every node of a cluster of network namespaces."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests import network
from tests.integration.conftest import Program

pytestmark = pytest.mark.integration

TOKEN = "correct horse battery staple"  # noqa: S105 - of these tests
PORT = 29517
END_SECONDS = 120


class NodesOfProgram:
    """Runs torchscale on the nodes of a cluster; only node 0 has the results directory."""

    def __init__(self, program: Program, cluster: network.Cluster) -> None:
        self.program, self.cluster = program, cluster
        self._running: list[subprocess.Popen[str]] = []

    @property
    def master(self) -> str:
        """``--master`` of every node."""
        return f"{self.cluster.nodes[0].address}:{PORT}"

    def start(
        self, number: int, config: str, *arguments: str, nodes: int | None = None, **variables: str
    ) -> subprocess.Popen[str]:
        """Start a sweep's node ``number``, in a directory of its own."""
        node = self.cluster.nodes[number]
        directory = self.program.directory / node.hostname
        (directory / "tmp").mkdir(parents=True, exist_ok=True)
        count = len(self.cluster.nodes) if nodes is None else nodes
        options = ["--nnodes", str(count), "--node-rank", str(number), "--master", self.master]
        argv = self.program.argv("benchmark", str(self.program.directory / config), *options, *arguments)
        env = {**self.program.env(), "TORCHSCALE_TOKEN": TOKEN, "TMPDIR": str(directory / "tmp"), **variables}
        process = subprocess.Popen(
            node.argv(*argv), cwd=directory, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._running.append(process)
        return process

    def records(self) -> dict[str, dict[str, Any]]:
        """Of node 0: ``<cell-id>/launch-K`` → content."""
        return self.program.records("n0/results/run")

    def by_size(self) -> dict[int, dict[str, Any]]:
        """Of node 0: world size → record, with one cell a world size."""
        folder = self.program.directory / "n0/results/run/cells"
        sizes = {path.parent.name: json.loads(path.read_text())["world_size"] for path in folder.glob("*/cell.json")}
        return {sizes[name.partition("/")[0]]: record for name, record in self.records().items()}

    def end(self) -> None:
        """End what still runs."""
        for process in self._running:
            if process.poll() is None:
                process.kill()
            process.communicate(timeout=END_SECONDS)


def output_of(process: subprocess.Popen[str], seconds: float = END_SECONDS) -> tuple[int, str]:
    """Exit code and output of a node that ends by itself."""
    output, _ = process.communicate(timeout=seconds)
    return process.returncode, output


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
    launch = {"join_timeout_seconds": 60.0, "node_timeout_seconds": 6.0, **content.pop("launch", {})}
    defaults: dict[str, Any] = {"models": ["tiny-decoder"], "gpu_counts": [1, 2], "batch_sizes": [2]}
    return program.config(**{**defaults, "launch": launch, **content})


def test_a_sweep_over_two_nodes_ends_in_one_folder(two_nodes: NodesOfProgram) -> None:
    name = config(two_nodes.program)
    first, second = two_nodes.start(0, name), two_nodes.start(1, name)
    code, output = output_of(first)
    assert code == 0, output
    code, output = output_of(second)
    assert code == 0, output
    records = two_nodes.by_size()
    assert [records[size]["state"] for size in (1, 2)] == ["ok", "ok"]
    ranks = records[2]["payload"]["ranks"]
    assert [(rank["hostname"], rank["node_rank"], rank["local_rank"]) for rank in ranks] == [("n0", 0, 0), ("n1", 1, 0)]
    assert [(node["hostname"], node["first_rank"]) for node in records[2]["nodes"]] == [("n0", 0), ("n1", 1)]
    (steps,) = (two_nodes.program.directory / "n0").rglob("steps-rank-1.jsonl")
    assert steps.stat().st_size > 0
    assert not (two_nodes.program.directory / "n1/results").exists()
    assert list((two_nodes.program.directory / "n1/tmp").glob("torchscale*")) == []
