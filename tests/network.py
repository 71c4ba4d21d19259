"""Network namespaces that stand for the nodes of a cluster: each has a host name, an address on a
common bridge and a link that can be shaped or cut. Nothing of it is visible outside, and all of it
goes with its processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

HOLD_SECONDS = 900
"""A namespace ends after this long whatever happens: longer than any test or benchmark that uses
one."""
_TOOL_SECONDS = 20
_KILL_SECONDS = 10
_PATH = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])


@dataclass(frozen=True)
class Node:
    """A namespace with a host name and an address."""

    number: int
    hostname: str
    address: str
    enter: tuple[str, ...]
    core: int
    holder: int
    """The process that keeps the namespace."""

    def argv(self, *command: str) -> list[str]:
        """``command``, to be run on this node: with its network, its host name and one core."""
        return [*self.enter, tool("taskset"), "-c", str(self.core), *command]


@dataclass
class Cluster:
    """Nodes on one bridge."""

    hub: tuple[str, ...]
    nodes: list[Node] = field(default_factory=list)

    def shape(self, node: Node, rate: str, rail: int = 0) -> None:
        """Limit a node's link to ``rate`` (``100mbit``) in both directions."""
        for enter, link in ((self.hub, _link(node.number, rail)), (node.enter, f"eth{rail}")):
            run([*enter, tool("tc"), "qdisc", "replace", "dev", link, "root", *_bucket(rate)])

    def shape_link(self, first: Node, second: Node, rate: str, *, others: str) -> None:
        """Limit what these two nodes send to each other to ``rate``, and what they send to
        ``others`` to that: a token bucket has no classes, so the queue of each is a tree with a
        filter on the address of the other."""
        for node, other in ((first, second), (second, first)):
            tc = [*node.enter, tool("tc")]
            run(
                [
                    *tc,
                    "qdisc",
                    "replace",
                    "dev",
                    "eth0",
                    "root",
                    "handle",
                    "1:",
                    "htb",
                    "default",
                    "10",
                ]
            )
            for name, limit in (("1:10", others), ("1:20", rate)):
                run(
                    [
                        *tc,
                        "class",
                        "replace",
                        "dev",
                        "eth0",
                        "parent",
                        "1:",
                        "classid",
                        name,
                        "htb",
                        "rate",
                        limit,
                    ]
                )
            match = ["u32", "match", "ip", "dst", f"{other.address}/32", "flowid", "1:20"]
            run(
                [
                    *tc,
                    "filter",
                    "replace",
                    "dev",
                    "eth0",
                    "parent",
                    "1:",
                    "protocol",
                    "ip",
                    "prio",
                    "1",
                    *match,
                ]
            )

    def cut(self, node: Node) -> None:
        """Take a node's link down: what is sent is lost, and nobody is told."""
        run([*self.hub, tool("ip"), "link", "set", f"v{node.number}", "down"])

    def join(self, node: Node) -> None:
        """Take its link up again."""
        run([*self.hub, tool("ip"), "link", "set", f"v{node.number}", "up"])


@contextmanager
def cluster(nodes: int, rails: int = 1) -> Iterator[Cluster]:
    """A cluster of ``nodes`` nodes: ``n0`` at 10.77.0.1, ``n1`` at 10.77.0.2, … Each further rail is a
    bridge of its own with an interface of each node: ``eth1`` at 10.78.0.1, …

    Raises:
        PermissionError: this user may make no namespaces.
    """
    cores = sorted(os.sched_getaffinity(0))
    with ExitStack() as stack:
        hub, as_user = _hub(stack)
        made = Cluster(_enter(hub, as_user))
        ip = [*made.hub, tool("ip")]
        for rail in range(rails):
            run([*ip, "link", "add", f"br{rail}", "type", "bridge"])
            run([*ip, "link", "set", f"br{rail}", "up"])
        for number in range(nodes):
            outside = _enter(hub, as_user) if as_user else ()
            holder = _hold([*outside, tool("unshare"), "-n", "-u"], stack)
            enter = _enter(holder, as_user)
            node = Node(
                number,
                f"n{number}",
                _address(number, 0),
                enter,
                cores[number % len(cores)],
                holder,
            )
            run([*enter, tool("hostname"), node.hostname])
            run([*enter, tool("ip"), "link", "set", "lo", "up"])
            for rail in range(rails):
                _join_bridge(ip, holder, node, rail)
            made.nodes.append(node)
        yield made


def _join_bridge(ip: Sequence[str], holder: int, node: Node, rail: int) -> None:
    """A link between a node and the bridge of a rail."""
    link, name = _link(node.number, rail), f"eth{rail}"
    pair = ["link", "add", link, "type", "veth", "peer", "name", name, "netns", str(holder)]
    run([*ip, *pair])
    run([*ip, "link", "set", link, "master", f"br{rail}", "up"])
    inside = [*node.enter, tool("ip")]
    run([*inside, "link", "set", name, "up"])
    run([*inside, "address", "add", f"{_address(node.number, rail)}/16", "dev", name])


def _address(number: int, rail: int) -> str:
    return f"10.{77 + rail}.{number // 250}.{number % 250 + 1}"


def _link(number: int, rail: int) -> str:
    """The bridge's end of a node's link."""
    return f"v{number}" if rail == 0 else f"v{number}r{rail}"


def with_names(hosts: Path) -> list[str]:
    """What goes before a command that is to see this file as its ``/etc/hosts``: a mount namespace
    of its own."""
    script = 'mount --bind "$0" /etc/hosts && exec "$@"'
    return [tool("unshare"), "-m", "sh", "-c", script, str(hosts)]


def write_names(nodes: Sequence[Node], hosts: Path) -> None:
    """Write the file by which the names of all nodes resolve."""
    names = ["127.0.0.1 localhost", *(f"{node.address} {node.hostname}" for node in nodes)]
    hosts.write_text("\n".join(names) + "\n")


def run(command: Sequence[str]) -> None:
    """Run a tool to its end.

    Raises:
        RuntimeError: it fails.
    """
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def _hub(stack: ExitStack) -> tuple[int, bool]:
    """The namespace with the bridge: its process, and whether it needed a user namespace too."""
    try:
        return _hold([tool("unshare"), "-n", "-u"], stack), False
    except PermissionError:
        return _hold([tool("unshare"), "-r", "-n", "-u"], stack), True


def _hold(unshare: Sequence[str], stack: ExitStack) -> int:
    """A process that holds new namespaces until ``stack`` is closed. Returns its id."""
    holder = subprocess.Popen(
        [*unshare, tool("sleep"), str(HOLD_SECONDS)],
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    stack.callback(_end, holder)
    ours = Path("/proc/self/ns/net").readlink()
    deadline = time.monotonic() + _TOOL_SECONDS
    while time.monotonic() < deadline:
        if holder.poll() is not None:
            break
        program = Path(f"/proc/{holder.pid}/comm").read_text().strip()
        if program == "sleep" and Path(f"/proc/{holder.pid}/ns/net").readlink() != ours:
            return holder.pid
        time.sleep(0.01)
    stderr = (
        holder.stderr.read() if holder.stderr is not None and holder.poll() is not None else b""
    )
    raise PermissionError(f"{' '.join(unshare)}: {stderr.decode().strip() or 'no namespace'}")


def _end(holder: subprocess.Popen[bytes]) -> None:
    holder.kill()
    holder.wait(_TOOL_SECONDS)
    if holder.stderr is not None:
        holder.stderr.close()


def _enter(process: int, as_user: bool) -> tuple[str, ...]:
    user = ("-U", "--preserve-credentials") if as_user else ()
    return (tool("nsenter"), "-t", str(process), *user, "-n", "-u")


def _bucket(rate: str) -> list[str]:
    """A token bucket: bursts of a few packets, so that the rate holds for every message."""
    return ["tbf", "rate", rate, "burst", "128kb", "latency", "400ms"]


def processes(*nodes: Node) -> list[psutil.Process]:
    """Everything that runs on these nodes."""
    holders = {node.holder for node in nodes}
    spaces = {Path(f"/proc/{holder}/ns/net").readlink() for holder in holders}
    found = []
    for process in psutil.process_iter():
        try:
            inside = Path(f"/proc/{process.pid}/ns/net").readlink() in spaces
            if inside and process.pid not in holders:
                found.append(process)
        except OSError:  # it has ended, or is of another user
            continue
    return found


def kill(*nodes: Node) -> None:
    """Kill everything on these nodes at once, as when they lose power, though what had connections
    to them sees those end."""
    while left := processes(*nodes):
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, _KILL_SECONDS)


def tool(name: str) -> str:
    """The path of a program of the system.

    Raises:
        FileNotFoundError: it is not installed.
    """
    found = shutil.which(name, path=_PATH)
    if found is None:
        raise FileNotFoundError(
            f"{name} is not installed; scripts/system-packages.sh tests installs it"
        )
    return found
