"""A real Ray cluster of two or more nodes on one machine, from its package: a ``ray start`` for each
network namespace of :mod:`tests.network`, where the names of the nodes resolve. Each node has a
temporary directory of its own below one of the cluster, and everything ends with the context, or
with the process that made it.

``python -m tests.ray_cluster --nodes 3 -- ray status`` runs a command on the first node of such a
cluster.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests import network

START_SECONDS = 90
"""Three nodes are up within 8 s on two cores: Ray starts a dozen Python processes."""
STOP_SECONDS = 20
"""Ray gives a raylet that is told to end 10 s for its workers."""
_END_SECONDS = 10
_PORT = 6379
_OBJECT_STORE_BYTES = 80 * 1024**2
"""The least that Ray takes is 75 MiB. Its pages are of memory only once they are written."""

FAST_HEALTH_CHECKS = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "3",
}
"""Ray's own are 5000, 3000, 10000 and 5, and each check that fails counts one towards the last. A
node whose processes are killed refuses them, so it is lost within 2 s (15 s by Ray's own); one that
is cut off or stopped lets each time out, and is lost within 11 s (63 s). A shorter timeout would
lose nodes of a busy machine."""

_ALIVE = """\
import sys, time
from ray._raylet import GcsClient
address, nodes = sys.argv[1], int(sys.argv[2])
client = GcsClient(address=address)
while sum(info.state == 0 for info in client.get_all_node_info(timeout=5).values()) < nodes:
    time.sleep(0.05)
"""
"""Ends when as many nodes are alive. No driver, whose start takes longer, and leaves workers."""


@dataclass(frozen=True)
class RayCluster:
    """A running cluster.

    Attributes:
        nodes: Its namespaces; the head is the first.
        links: Which can be cut or shaped.
        directory: Its temporary directories, ``n0``, ``n1``, …, and what ``ray start`` prints.
        environment: Of every process of Ray, and of every command.
    """

    nodes: tuple[network.Node, ...]
    links: network.Cluster
    directory: Path
    environment: Mapping[str, str]
    _started: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """For ``RAY_ADDRESS``, on any node."""
        return f"{self.nodes[0].address}:{_PORT}"

    def argv(self, node: network.Node, *command: str) -> list[str]:
        """``command``, to be run in :attr:`environment` on this node, as a driver of this
        cluster."""
        return [*self.enter(node), network.tool("env"), f"RAY_ADDRESS={self.address}", *command]

    def enter(self, node: network.Node) -> list[str]:
        """What goes before a command on this node, where the names of all nodes resolve."""
        return [*node.enter, *network.with_names(self.directory / "hosts")]

    def processes(self, *nodes: network.Node) -> list[psutil.Process]:
        """Everything that runs on these nodes: Ray, what its workers started, and drivers."""
        return network.processes(*nodes)

    def workers(self, node: network.Node) -> dict[int, str]:
        """The worker processes of a node with what they are: ``ray::Counter`` or ``ray::IDLE`` of
        an actor or of none."""
        return {
            process.pid: title
            for process in self.processes(node)
            if (title := _title(process)).startswith("ray::")
        }

    def raylet(self, node: network.Node) -> int:
        """The process that is Ray's on a node, by which all else of Ray there lives.

        Raises:
            LookupError: there is none.
        """
        for process in self.processes(node):
            if Path(_title(process).split(" ")[0]).name == "raylet":
                return process.pid
        raise LookupError(f"{node.hostname} runs no raylet:\n{self.logs()}")

    def kill_node(self, *nodes: network.Node) -> None:
        """Kill everything on these nodes at once, as when they lose power, though what had
        connections to them sees those end."""
        network.kill(*nodes)

    def stop_node(self, node: network.Node) -> None:
        """End Ray on a node in order: its workers are told to end. What those started stays."""
        _end(self._started[node.number], STOP_SECONDS)

    def logs(self) -> str:
        """The last lines that ``ray start`` printed, and of the files that say why Ray ended."""
        paths = [
            *sorted(self.directory.glob("*.log")),
            *sorted(self.directory.glob("n*/session_2*/logs/*.err")),
            *sorted(self.directory.glob("n*/session_2*/logs/raylet.out")),
            *sorted(self.directory.glob("n*/session_2*/logs/gcs_server.out")),
        ]
        return "\n".join(
            f"{path.relative_to(self.directory)}: {line}"
            for path in paths
            for line in path.read_text(errors="replace").splitlines()[-15:]
        )


@contextmanager
def ray_cluster(
    nodes: int = 2,
    *,
    cpus: int = 2,
    head_cpus: int | None = None,
    gpus: int = 0,
    pinned: bool = False,
    token: str | None = None,
    extra_env: Mapping[str, str] | None = None,
) -> Iterator[RayCluster]:
    """A cluster whose nodes are alive. What still runs on them at the end is killed.

    Args:
        nodes: How many, the head among them.
        cpus: That each says it has.
        head_cpus: That the head says it has; as the others where None. 0 keeps work away from it.
        gpus: That each says it has, whatever the machine has.
        pinned: Whether each node and what it starts have one core.
        token: That every process and every command needs; none where None.
        extra_env: Variables for every process of Ray and every command, and so for whatever they
            start.

    Raises:
        FileNotFoundError: Ray is not installed.
        PermissionError: this user may make no namespaces.
        RuntimeError: it does not come up.
    """
    ray = Path(sys.executable).with_name("ray")
    if not ray.exists():
        raise FileNotFoundError(f"{ray} is missing; the extra 'ray' installs it")
    with ExitStack() as stack:
        made = stack.enter_context(network.cluster(nodes))
        # Sockets are 70 characters below, and 107 are the most: no longer directory will do.
        directory = Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp"))
        )
        cluster = RayCluster(
            tuple(made.nodes), made, directory, _environment(token, extra_env or {})
        )
        stack.callback(_kill_all, cluster)
        network.write_names(cluster.nodes, directory / "hosts")
        for node in cluster.nodes:
            share = cpus if node.number or head_cpus is None else head_cpus
            log = stack.enter_context((directory / f"{node.hostname}.log").open("wb"))
            names = network.with_names(directory / "hosts")
            enter = node.argv(*names) if pinned else cluster.enter(node)
            # It is told to end when this process is killed, which then can end nothing.
            dies = [network.tool("setpriv"), "--pdeathsig", "TERM"]
            cluster._started[node.number] = subprocess.Popen(
                [*enter, *dies, str(ray), *_start(cluster, node, share, gpus)],
                env=cluster.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        _wait_alive(cluster)
        yield cluster


def _start(cluster: RayCluster, node: network.Node, cpus: int, gpus: int) -> list[str]:
    head = ["--head", f"--port={_PORT}", "--include-dashboard=false"]
    return [
        "start",
        *(head if node.number == 0 else [f"--address={cluster.address}"]),
        f"--node-ip-address={node.address}",  # no route leads outside, by which Ray would find it
        f"--temp-dir={cluster.directory / node.hostname}",
        f"--num-cpus={cpus}",
        f"--num-gpus={gpus}",
        f"--object-store-memory={_OBJECT_STORE_BYTES}",
        "--disable-usage-stats",
        "--block",
    ]


def _environment(token: str | None, extra_env: Mapping[str, str]) -> dict[str, str]:
    """Without what a Ray outside would say to these."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    tokens = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token} if token is not None else {}
    return {
        **ours,
        "RAY_AUTH_MODE": "disabled",
        **FAST_HEALTH_CHECKS,
        **tokens,
        **extra_env,
    }


def _wait_alive(cluster: RayCluster) -> None:
    deadline = time.monotonic() + START_SECONDS
    log = cluster.directory / "alive.log"
    script = [sys.executable, "-c", _ALIVE, cluster.address, str(len(cluster.nodes))]
    while time.monotonic() < deadline:
        left = deadline - time.monotonic()
        with log.open("wb") as file:
            process = subprocess.Popen(
                cluster.argv(cluster.nodes[0], *script),
                env=cluster.environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
            try:
                done = process.wait(left)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(_END_SECONDS)
                break
        if done == 0:
            return
        ended = [number for number, start in cluster._started.items() if start.poll() is not None]
        if ended:
            raise RuntimeError(f"ray start ended on {ended}:\n{cluster.logs()}")
    raise RuntimeError(f"Ray did not come up within {START_SECONDS} s:\n{cluster.logs()}")


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.Error:
        return


def _end(process: subprocess.Popen[bytes], seconds: float) -> None:
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_END_SECONDS)


def _kill_all(cluster: RayCluster) -> None:
    cluster.kill_node(*cluster.nodes)
    for process in cluster._started.values():
        process.wait(_END_SECONDS)


def main(arguments: Sequence[str]) -> int:
    """Run a command on the first node of a cluster. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.ray_cluster", description=__doc__)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--cpus", type=int, default=2)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("command", nargs="+")
    options = parser.parse_args(arguments)
    with ray_cluster(options.nodes, cpus=options.cpus, gpus=options.gpus) as cluster:
        argv = cluster.argv(cluster.nodes[0], *options.command)
        return subprocess.run(argv, env=cluster.environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
