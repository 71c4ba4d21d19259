"""Does a sweep over two nodes run unharmed while strangers without its token hold its port?

::

    python benchmarks/strangers.py --rounds 3

Each round is a sweep of one launch over two network namespaces. From the second node's address,
``--idle`` connections say nothing, and ``--again`` connect, are dropped and connect again, from
before the second node starts until the sweep has ended. Both nodes may have 1,024 files open.
Printed are the seconds from the moment when the second node asks to take part until it does, and
how the sweep ended, with the same without strangers beside it. Needs root or user namespaces, and
iproute2.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import node_sweep  # noqa: E402 - beside this file

from tests import network  # noqa: E402 - of this checkout, which the line above makes importable

PORT = 29535
FILES = 1024
END_SECONDS = 240
LIMITED = ("sh", "-c", f'ulimit -n {FILES}; exec "$@"', "sh")
_POLL_SECONDS = 0.005
_ASKS, _JOINED = "Waiting for node 0", "results on node 0"
"""What the second node prints."""


def strangers(address: str, idle: int, again: int) -> None:
    """Be the strangers, in this process and the namespace that it is in, until it is ended."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
    held: list[socket.socket] = []
    while len(held) < idle:
        with contextlib.suppress(OSError):
            held.append(socket.create_connection((address, PORT), 5))
    print("here", flush=True)

    def come_again() -> None:
        while True:
            with (
                contextlib.suppress(OSError),
                socket.create_connection((address, PORT), 5) as stranger,
            ):
                stranger.settimeout(0.2)
                stranger.recv(1)

    for _ in range(again):
        threading.Thread(target=come_again, daemon=True).start()
    threading.Event().wait(END_SECONDS)


def sweep(
    cluster: network.Cluster, directory: Path, idle: int, again: int
) -> tuple[float, list[int]]:
    """Seconds until the second node has joined, and the exit codes of both."""
    directory.mkdir(parents=True)
    config = node_sweep.write_config(directory, warmup_steps=5, measure_steps=40)
    leader = node_sweep.start(cluster, 0, config, PORT, LIMITED)
    crowd = None
    if idle or again:
        time.sleep(4)  # the leader's port is open once it has looked at its machine
        here = [sys.executable, __file__, "--be", cluster.nodes[0].address]
        amounts = ["--idle", str(idle), "--again", str(again)]
        crowd = subprocess.Popen(
            cluster.nodes[1].argv(*here, *amounts), stdout=subprocess.PIPE, text=True
        )
        assert crowd.stdout is not None
        crowd.stdout.readline()
    follower = node_sweep.start(cluster, 1, config, PORT, LIMITED)
    joined = _seconds_until_joined(directory / "n1" / "output", follower)
    codes = [process.wait(END_SECONDS) for process in (leader, follower)]
    if crowd is not None:
        crowd.kill()
        crowd.wait()
    return joined, codes


def _seconds_until_joined(output: Path, follower: subprocess.Popen[bytes]) -> float:
    """From the moment when the follower asks to take part to the one when it does."""
    asked = 0.0
    began = time.monotonic()
    while follower.poll() is None and time.monotonic() - began < END_SECONDS:
        said = output.read_text(errors="replace")
        if not asked and _ASKS in said:
            asked = time.monotonic()
        if _JOINED in said:
            return time.monotonic() - asked if asked else _POLL_SECONDS  # both since the last look
        time.sleep(_POLL_SECONDS)
    return float("inf")


def main() -> None:
    """Print each round, with and without strangers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--idle", type=int, default=1400)
    parser.add_argument("--again", type=int, default=400)
    parser.add_argument("--be", metavar="ADDRESS", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be:
        strangers(options.be, options.idle, options.again)
        return
    with network.cluster(2) as cluster, tempfile.TemporaryDirectory() as name:
        for number in range(options.rounds):
            for idle, again in ((0, 0), (options.idle, options.again)):
                seconds, codes = sweep(cluster, Path(name) / f"{number}-{idle}", idle, again)
                print(
                    f"round {number + 1}, {idle} idle and {again} again: joined after "
                    f"{seconds:.2f} s, exit codes {codes}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
