"""What the channel between nodes takes for up to 128 of them: each a process of its own on this
machine, without torch.

::

    python benchmarks/channel_scale.py                       # 8, 32 and 128 nodes of 8 ranks
    python benchmarks/channel_scale.py --nodes 4 8 --ranks 2

A stand-in takes the place of each node: it joins the real first node over TCP, with the real
handshake, preflight and messages; at an order it sends files as its ranks would leave them.
Measured: until all have joined and every pair has connected both ways, until a cell's files have
come, until a launch that hangs on all nodes is over, and the memory and processor time of the first
node's process.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import tempfile
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from torchscale.features.cluster.cluster import Cluster
from torchscale.features.cluster.nodes.descriptions import NodeDescription
from torchscale.features.cluster.nodes.joining_follower import JoiningFollower
from torchscale.features.cluster.nodes.leader import Leader
from torchscale.features.cluster.nodes.messages import Ended, Farewell, Start
from torchscale.features.cluster.nodes.network import listen
from torchscale.features.cluster.nodes.remote_launch import RemoteLaunch
from torchscale.launch.control import StopRequest
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.node.environment import Versions
from torchscale.util.processes.subprocesses import wait_until

HERE = "127.0.0.1"
TOKEN = os.urandom(32).hex().encode()
RECORD_BYTES, STEPS_BYTES = 20_000, 100_000
"""Of a rank: a record with a hundred batches, and 400 steps."""
JOIN_SECONDS, CELL_SECONDS = 300.0, 120.0
SILENT_SECONDS = 120.0
HANGS, FINISHES = "hangs", "finishes"


@dataclass(frozen=True)
class Result:
    """Seconds, and bytes of resident memory; ``first_node_cpu_seconds`` are of its process, for all
    phases."""

    nodes: int
    ranks: int
    meet_seconds: float
    collect_seconds: float
    collected_bytes: int
    end_hanging_seconds: float
    first_node_resident_bytes: int
    first_node_cpu_seconds: float


def measure(nodes: int, ranks: int, directory: Path) -> Result:
    """One cluster of ``nodes`` nodes, this process being the first.

    Raises:
        RuntimeError: a phase does not end within its bound.
    """
    server = listen(HERE, 0)
    port = int(server.getsockname()[1])
    children = [
        _start_node(Cluster(nodes, rank, HERE, port), ranks, directory) for rank in range(1, nodes)
    ]
    cpu = time.process_time()
    leader = Leader(server, TOKEN, _description(0), nodes, silent_seconds=SILENT_SECONDS)
    try:
        begun = time.monotonic()
        leader.meet(JOIN_SECONDS, StopRequest())
        meet_seconds = time.monotonic() - begun
        if leader.available != nodes:
            raise RuntimeError(
                f"{leader.available} of {nodes} nodes joined: {leader.missing()[:3]}"
            )
        begun = time.monotonic()
        remote = _launch(leader, nodes, ranks, directory, FINISHES)
        _require(
            wait_until(lambda: remote.is_collected, timeout_seconds=CELL_SECONDS),
            "the files did not come",
        )
        collect_seconds = time.monotonic() - begun
        leader.forget(remote, "late")
        collected = sum(path.stat().st_size for path in directory.glob("collected/*"))
        remote = _launch(leader, nodes, ranks, directory, HANGS)
        begun = time.monotonic()
        leader.end(remote)
        _require(
            wait_until(lambda: remote.is_collected, timeout_seconds=CELL_SECONDS),
            "the launch did not end",
        )
        end_seconds = time.monotonic() - begun
        leader.forget(remote, "late")
        _require(leader.available == nodes, f"lost on the way: {leader.missing()[:3]}")
    finally:
        leader.close(0)
        _end(children)
    return Result(
        nodes,
        ranks,
        meet_seconds,
        collect_seconds,
        collected,
        end_seconds,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        time.process_time() - cpu,
    )


def _require(fine: bool, problem: str) -> None:
    if not fine:
        raise RuntimeError(problem)


def _launch(leader: Leader, nodes: int, ranks: int, directory: Path, cell: str) -> RemoteLaunch:
    collected = directory / "collected"
    collected.mkdir(exist_ok=True)

    def names(node: LaunchNode) -> dict[str, Path]:
        numbers = range(node.first_rank, node.first_rank + node.ranks)
        files = [
            name for rank in numbers for name in (f"rank-{rank}.json", f"steps-rank-{rank}.jsonl")
        ]
        return {name: collected / name for name in files}

    layout = leader.layout(nodes, ranks)
    return leader.start(layout, names, cell_id=cell, launch=0, master_port=1, counts_flops=False)


class _Local(JoiningFollower):
    """A node on the loopback address, which the command line refuses."""

    @property
    def leader_address(self) -> str:
        return HERE


def _start_node(cluster: Cluster, ranks: int, directory: Path) -> int:
    """A copy of this process as another node. Returns its id."""
    child = os.fork()
    if child:
        return child
    status = 1
    try:
        signal.alarm(int(JOIN_SECONDS + 2 * CELL_SECONDS))
        status = _be_a_node(cluster, ranks, directory / f"node-{cluster.node_rank}")
    finally:
        os._exit(status)


def _be_a_node(cluster: Cluster, ranks: int, directory: Path) -> int:
    """Take orders until the sweep is over: send a cell's files at once, or hang until told to
    end."""
    directory.mkdir()
    follower = _Local(cluster, TOKEN, silent_seconds=SILENT_SECONDS)
    follower.join(_description(cluster.node_rank), JOIN_SECONDS, lambda: False)
    while True:
        order = follower.orders.get(timeout=JOIN_SECONDS)
        if isinstance(order, Farewell):
            return order.exit_code
        if not isinstance(order, Start):
            raise TypeError(f"expected a launch: {order}")
        files = []
        if order.cell_id == HANGS:
            wait_until(partial(follower.should_end, order.order), timeout_seconds=CELL_SECONDS)
        else:
            first = cluster.node_rank * ranks
            for rank in range(first, first + ranks):
                for name, size in (
                    (f"rank-{rank}.json", RECORD_BYTES),
                    (f"steps-rank-{rank}.jsonl", STEPS_BYTES),
                ):
                    (directory / name).write_bytes(os.urandom(size))
                    files.append(directory / name)
        follower.report(Ended(order=order.order, exit_code=0), files)


def _description(node_rank: int) -> NodeDescription:
    return NodeDescription(
        hostname=f"n{node_rank}",
        versions=Versions(torchscale="0", python="3", torch="2"),
        device="cpu",
        devices_per_node=8,
        threads_per_rank=1,
        plan_hash="0",
        config={f"section.key{number}": "1" for number in range(100)},
    )


def _end(children: list[int]) -> None:
    for child in children:
        deadline = time.monotonic() + 10
        while os.waitpid(child, os.WNOHANG) == (0, 0):
            if time.monotonic() > deadline:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.01)


def main() -> None:
    """Print a line of JSON for each number of nodes; each runs in a process of its own, so that
    memory is its own."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--ranks", type=int, default=8, help="on each node")
    arguments = parser.parse_args()
    for nodes in arguments.nodes:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                with tempfile.TemporaryDirectory() as directory:
                    result = measure(nodes, arguments.ranks, Path(directory))
                print(json.dumps(asdict(result)), flush=True)
                status = 0
            finally:
                os._exit(status)
        _, ended = os.waitpid(child, 0)
        _require(ended == 0, f"{nodes} nodes: failed")


if __name__ == "__main__":
    main()
