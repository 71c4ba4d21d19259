"""Does ``torchscale validate --pairwise`` name the slow link or the slow node, and nobody where all
are equal? The real command on every node of a cluster of four network namespaces, whose links are
shaped.

::

    python benchmarks/fleet_nodes.py --equal 20            # every case, and 20 clean rounds: about an hour
    python benchmarks/fleet_nodes.py --equal 1 --only link

Cases: each of the six links at a third of the rate of the others, each of the four nodes, a link
that drops everything, and equal links. Needs root or user namespaces, and iproute2.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests import network  # noqa: E402 - of this checkout, which the line above makes importable

NODES = 4
PORT = 29535
TOKEN = os.urandom(32).hex()
RATE, SLOW_RATE = "200mbit", "66mbit"
END_SECONDS = 400
LABELS = {"link": "link", "node": "node", "dead": "dead link", "equal": "equal"}

_UNREACHED = re.compile(r"n(\d+) cannot connect to n(\d+)")
"""Before anything is measured, every node connects to every other one."""


@dataclass(frozen=True)
class Case:
    """What is wrong with the cluster: a node, a link, or nothing."""

    kind: str
    where: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """Name for output."""
        place = "–".join(f"n{number}" for number in self.where)
        return " ".join([LABELS.get(self.kind, self.kind), place]).strip()


def cases(equal: int, only: list[str]) -> Iterator[Case]:
    """Every case that the arguments ask for."""
    links = list(itertools.combinations(range(NODES), 2))
    every = [
        *(Case("link", pair) for pair in links),
        *(Case("node", (number,)) for number in range(NODES)),
        *(
            Case("dead", pair) for pair in links if 0 not in pair
        ),  # node 0 would not hear of the others
        *([Case("equal")] * equal),
    ]
    return (case for case in every if case.kind in only)


def prepare(cluster: network.Cluster, case: Case) -> None:
    """Shape the links."""
    for node in cluster.nodes:
        cluster.shape(
            node, SLOW_RATE if case.kind == "node" and node.number in case.where else RATE
        )
    if case.kind in ("link", "dead"):
        first, second = (cluster.nodes[number] for number in case.where)
        cluster.shape_link(first, second, SLOW_RATE if case.kind == "link" else "8bit", others=RATE)


def validate(cluster: network.Cluster, directory: Path) -> tuple[list[str], str]:
    """What node 0 names, and whether node times could be told from link times."""
    running = []
    env = {**os.environ, "TORCHSCALE_TOKEN": TOKEN}
    try:
        for node in cluster.nodes:
            place = [
                "--nnodes",
                str(NODES),
                "--node-rank",
                str(node.number),
                "--master",
                f"10.77.0.1:{PORT}",
            ]
            command = [
                sys.executable,
                "-m",
                "torchscale",
                "--quiet",
                "validate",
                *place,
                "--pairwise",
                "--json",
            ]
            there = directory / node.hostname
            there.mkdir()
            with (there / "out").open("w") as out, (there / "errors").open("w") as errors:
                running.append(
                    subprocess.Popen(
                        node.argv(*command), cwd=there, env=env, stdout=out, stderr=errors
                    )
                )
        for process in running:
            process.wait(END_SECONDS)
    finally:
        for process in running:
            process.kill()
            process.wait()
    unreached = _UNREACHED.findall((directory / "n0" / "errors").read_text())
    if unreached:
        pairs = {tuple(sorted((int(first), int(second)))) for first, second in unreached}
        return [Case("dead", pair).name for pair in sorted(pairs)], "not started"
    content: dict[str, Any] = json.loads((directory / "n0" / "out").read_text())
    return named(content), content["pairwise"]["status"]


def named(content: dict[str, Any]) -> list[str]:
    """Nodes and links that are called slow, and pairs that failed."""
    pairwise = content["pairwise"]
    slow = [("node", one["nodes"]) for one in pairwise["nodes"] if one["is_bad"]]
    slow += [("link", one["nodes"]) for one in pairwise["links"] if one["is_bad"]]
    slow += [("failed pair", pair["nodes"]) for pair in pairwise["pairs"] if pair["error"]]
    return [Case(kind, tuple(ranks)).name for kind, ranks in slow]


def main() -> None:
    """Run the cases; print a line each, and the totals."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--equal", type=int, default=20, help="rounds with equal links")
    parser.add_argument("--only", nargs="+", choices=LABELS, default=list(LABELS))
    arguments = parser.parse_args()
    right: dict[str, list[bool]] = defaultdict(list)
    for case in cases(arguments.equal, arguments.only):
        started = time.perf_counter()
        found, status = ["no result"], "none"
        with tempfile.TemporaryDirectory() as scratch, network.cluster(NODES) as cluster:
            prepare(cluster, case)
            with suppress(json.JSONDecodeError, subprocess.TimeoutExpired):
                found, status = validate(cluster, Path(scratch))
        right[case.kind].append(found == ([] if case.kind == "equal" else [case.name]))
        verdict = "right" if right[case.kind][-1] else "WRONG"
        took = time.perf_counter() - started
        print(
            f"{case.name}: {verdict}: {', '.join(found) or 'nobody'} ({status}, {took:.0f} s)",
            flush=True,
        )
    for kind, outcomes in right.items():
        print(f"{kind}: {sum(outcomes)} of {len(outcomes)} right")


if __name__ == "__main__":
    main()
