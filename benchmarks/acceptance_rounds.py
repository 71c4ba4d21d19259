"""Does ``torchscale validate --acceptance`` over four nodes name the one that is limited, say what of it
is slow and what to do, and nobody where all are equal? The real command on every node of a cluster of
network namespaces; each node has a quota of CPU time, a disk and two network cards of equal rates, and
in each round one thing of one node is less.

::

    python benchmarks/acceptance_rounds.py --rounds 12 --output rounds.jsonl
    python benchmarks/acceptance_rounds.py --rounds 12 --output rounds.jsonl --only cpu link --minutes 60
    python benchmarks/acceptance_rounds.py --only equal --equal 10 --budget 180 --output equal.jsonl
    python benchmarks/acceptance_rounds.py --here 10 --budget 180 --output here.jsonl
    python benchmarks/acceptance_rounds.py --show disk       # what node 0 prints, and no line in a file

``--here`` accepts this machine itself that often, without namespaces and limits (no root needed).
Each run prints its verdict and the levels of every figure.

A line for each round in ``--output``; the same command goes on behind the last one. Which node it is
follows from the round's number. Needs root, iproute2, and control groups of version 1. Leave the
machine alone meanwhile: rounds that others disturb abstain.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import limited_nodes  # noqa: E402 - beside this file

from tests import network  # noqa: E402 - of this checkout, which the line above makes importable
from torchscale.features.validate.acceptance.verdict import levels_text  # noqa: E402
from torchscale.schema.node.acceptance import JudgedFigure  # noqa: E402

NODES = 4
PORT = 29537
TOKEN = os.urandom(32).hex()
LESS_CPUS = 0.85
"""Share of the others' quota that the limited node has."""
DISK, SLOW_DISK = 100_000_000, 50_000_000
RATE, SLOW_RATE = "200mbit", "66mbit"
NETWORKS = ("10.77.0.0/16", "10.78.0.0/16")
END_SECONDS = 600
FAULTS = ("cpu", "memory", "disk", "link", "rail", "equal")
COUNTED = ("found", "placed", "right_action", "wrong", "returned", "disturbed", "flapping")
_NEIGHBOUR = """
import numpy
a = numpy.ones(16 << 20)
b = numpy.empty_like(a)
while True:
    b[:] = a
"""
"""Copies memory as fast as it can."""
_ACTIONS = {
    "cpu": "CPU quota",
    "memory": "quiet node",
    "disk": "smartctl",
    "link": "between them",
    "rail": "network card",
}
"""Words of the action that is right."""


@dataclass(frozen=True)
class Case:
    """A round: what is limited, and where: one node, or the two of a link."""

    fault: str
    number: int

    @property
    def where(self) -> tuple[int, ...]:
        """Nodes, drawn by the round's number."""
        rng = random.Random(f"{self.fault} {self.number}")
        if self.fault == "equal":
            return ()
        if self.fault == "link":
            return rng.choice(list(itertools.combinations(range(NODES), 2)))
        return (rng.randrange(NODES),)

    @property
    def place(self) -> str:
        """What the command should name."""
        if self.fault == "link":
            first, second = self.where
            return f"link n{first} – n{second}, {NETWORKS[0]}"
        if self.fault == "equal":
            return ""
        (node,) = self.where
        return {
            "disk": f"disk of n{node}",
            "rail": f"network of n{node}, {NETWORKS[1]}",
            "memory": f"others on n{node}",
        }.get(self.fault, f"n{node}")


@dataclass(frozen=True)
class Setting:
    """What all rounds share.

    Attributes:
        budget: Seconds of each acceptance.
        cpus: Quota of each node: 0.4 for four leave a fifth of two cores to everything else.
        shares: Weight of the nodes against what else runs on the machine; a group has 1,024 by
            default.
    """

    budget: float
    cpus: float
    shares: int


@dataclass(frozen=True)
class Named:
    """What the command names, and what it says is to be done."""

    place: str
    what: str
    disposition: str
    action: str


def named(content: dict[str, Any]) -> Iterator[Named]:
    """Nodes, disks, links and cards that are called slow, and nodes that others used."""
    for figure in content["speeds"]["figures"]:
        if figure["is_low"]:
            node = f"n{figure['node_rank']}"
            place = node if figure["part"] == "node" else f"{figure['part']} of {node}"
            what = f"{figure['figure']} -{figure['deficit']:.0%}"
            yield Named(place, what, figure["disposition"], figure["action"])
    for pairwise in (content["pairwise"], *content["rails"]):
        if pairwise is None:
            continue
        for each in (*pairwise["nodes"], *pairwise["links"]):
            if each["is_bad"]:
                nodes = " – ".join(f"n{rank}" for rank in each["nodes"])
                kind = "link" if len(each["nodes"]) > 1 else "network of"
                place = f"{kind} {nodes}, {pairwise['network'] or NETWORKS[0]}"
                what = f"+{each['share']:.0%} time"
                yield Named(place, what, each["disposition"], each["action"])
    for node in content["nodes"]:
        for part in node["validation"]["parts"] if node["validation"] else ():
            reasons = [reason for reason in part["reasons"] if "other processes had" in reason]
            if reasons:
                place = f"others on n{node['node_rank']}"
                yield Named(place, reasons[0], part["disposition"], part["action"])
            elif part["disposition"] == "return":
                place = f"n{node['node_rank']}"
                yield Named(place, "; ".join(part["reasons"]), "return", part["action"])


def judged(case: Case, found: Sequence[Named]) -> dict[str, Any]:
    """Whether the limited part was found, nothing else was named, and the action is right. Rounds
    that the machine's other users disturbed name no part, and are no finding but that of a
    neighbour."""
    disturbed = {each.place for each in found if each.place.startswith("others")}
    parts = {each.place for each in found} - disturbed
    if case.fault == "memory":
        hits = [each for each in found if each.place == case.place]
        wrong = {place for place in parts if f"n{case.where[0]}" not in place}
        wrong |= disturbed - {case.place}
    else:
        hits = [each for each in found if each.place == case.place]
        wrong = parts - {case.place}
    return {
        "found": bool(hits) or (case.fault == "equal" and not parts),
        "placed": not wrong and (bool(hits) or case.fault == "equal"),
        "right_action": any(_ACTIONS.get(case.fault, "") in each.action for each in hits),
        "returned": [each.place for each in found if each.disposition == "return"],
        "disturbed": sorted(disturbed),
        "wrong": sorted(wrong),
    }


def play(case: Case, setting: Setting, *, as_json: bool) -> tuple[str, str, float]:
    """Run the command on all nodes. Returns what node 0 printed, its messages, and the seconds."""
    quotas, rates = [setting.cpus] * NODES, [DISK] * NODES
    if case.fault == "cpu":
        quotas[case.where[0]] *= LESS_CPUS
    if case.fault == "disk":
        rates[case.where[0]] = SLOW_DISK
    running: list[subprocess.Popen[bytes]] = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rounds-out-")))
        stack.callback(_wait_for_all, running)  # once their control groups have ended them
        cluster = stack.enter_context(network.cluster(NODES, rails=len(NETWORKS)))
        for node, rail in itertools.product(cluster.nodes, range(len(NETWORKS))):
            slow = case.fault == "rail" and rail == 1 and node.number in case.where
            cluster.shape(node, SLOW_RATE if slow else RATE, rail)
        if case.fault == "link":
            first, second = (cluster.nodes[number] for number in case.where)
            cluster.shape_link(first, second, SLOW_RATE, others=RATE)
        nodes = stack.enter_context(
            limited_nodes.limited(cluster.nodes, quotas, rates, setting.shares)
        )
        if case.fault == "memory":
            running.append(_start_neighbour(nodes[case.where[0]], scratch))
        began = time.monotonic()
        commands = [_start(each, scratch, setting.budget, as_json=as_json) for each in nodes]
        running.extend(commands)
        for process in commands:
            process.wait(max(1.0, began + END_SECONDS - time.monotonic()))
        seconds = time.monotonic() - began
        first_node = scratch / "n0"
        return (first_node / "out").read_text(), (first_node / "errors").read_text(), seconds


def _wait_for_all(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.wait()


def _start_neighbour(node: limited_nodes.LimitedNode, scratch: Path) -> subprocess.Popen[bytes]:
    directory = scratch / "neighbour"
    directory.mkdir()
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return node.start([sys.executable, "-c", _NEIGHBOUR], node.neighbour, directory, env)


def _start(
    node: limited_nodes.LimitedNode, scratch: Path, budget: float, *, as_json: bool
) -> subprocess.Popen[bytes]:
    directory = scratch / node.node.hostname
    (directory / "tmp").mkdir(parents=True)
    place = ["--nnodes", str(NODES), "--node-rank", str(node.node.number)]
    place += ["--master", f"10.77.0.1:{PORT}"]
    asked = ["--acceptance", "--budget", f"{budget:g}s", "--pairwise", "-o", str(node.disk)]
    command = [sys.executable, "-m", "torchscale", "validate", *place, *asked]
    if as_json:
        command.append("--json")
    env = {**os.environ, "TORCHSCALE_TOKEN": TOKEN, "TMPDIR": str(directory / "tmp")}
    return node.start(command, node.tenant, directory, env | {"COLUMNS": "140"})


def _here(options: argparse.Namespace, lines: list[dict[str, Any]]) -> None:
    """Acceptances of this machine, behind those that are in the file."""
    until = time.monotonic() + 60 * options.minutes
    for number in range(len(lines), options.here):
        if time.monotonic() > until:
            return
        line = _of_this_machine(number, options.budget)
        lines.append(line)
        with options.output.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{number}: exit code {line['exit_code']}: {line.get('verdict', line.get('error'))}")
        for text in line.get("levels", ()):
            print(f"  {text}", flush=True)


def _of_this_machine(number: int, budget: float) -> dict[str, Any]:
    """One acceptance of it, as a line of the file."""
    with tempfile.TemporaryDirectory(prefix="rounds-here-") as scratch:
        asked = ["--acceptance", "--budget", f"{budget:g}s", "-o", scratch, "--json"]
        command = [sys.executable, "-m", "torchscale", "validate", *asked]
        line: dict[str, Any] = {"fault": "here", "number": number, "budget": budget}
        line |= {"started_at": round(time.time()), "load_before": round(os.getloadavg()[0], 2)}
        seconds = budget + END_SECONDS
        try:
            done = subprocess.run(  # noqa: PLW1510 - the exit code is the verdict
                command, cwd=HERE.parent, capture_output=True, text=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            return {**line, "exit_code": None, "error": f"no end within {seconds:.0f} s"}
    line["exit_code"] = done.returncode
    try:
        content = json.loads(done.stdout)
    except json.JSONDecodeError:
        return {**line, "error": done.stderr[-300:]}
    run = content["acceptance"]["run"] if content["acceptance"] else {"rounds": (), "series": ()}
    return {
        **line,
        "disposition": content["disposition"],
        "verdict": content["verdict"],
        "levels": _levels(content),
        "foreign": [each["conditions"]["foreign_share"] for each in run["rounds"]],
        "series": [[each["figure"], each["part"], each["values"]] for each in run["series"]],
    }


def _levels(validation: dict[str, Any] | None) -> list[str]:
    """``disk read of node: 1.72 GB/s in 12 rounds, 1.90 GB/s in 8``, a line for each figure."""
    if validation is None or validation["acceptance"] is None:
        return []
    found = [JudgedFigure.model_validate(it) for it in validation["acceptance"]["figures"]]
    return [
        f"{each.figure} of {each.part} ({each.status.value}): {levels_text(each)}" for each in found
    ]


def _line(case: Case, setting: Setting) -> dict[str, Any]:
    """A round as a line of the file."""
    load, started = os.getloadavg()[0], time.time()
    line: dict[str, Any] = {
        **asdict(case),
        "place": case.place,
        "started_at": round(started),
        **asdict(setting),
        "load_before": round(load, 2),
    }
    try:
        out, errors, seconds = play(case, setting, as_json=True)
    except subprocess.TimeoutExpired:
        return {**line, "error": f"no end within {END_SECONDS} s"}
    try:
        content = json.loads(out)
    except json.JSONDecodeError:
        return {**line, "error": errors[-300:]}
    found = list(named(content))
    runs = [
        node["validation"]["acceptance"]["run"] if node["validation"] else None
        for node in content["nodes"]
    ]
    return {
        **line,
        "seconds": round(seconds),
        **judged(case, found),
        "named": [asdict(each) for each in found],
        "flapping": _flapping(content),
        "disposition": content["disposition"],
        "verdict": content["verdict"],
        "levels": [
            f"n{node['node_rank']}: {text}"
            for node in content["nodes"]
            for text in _levels(node["validation"])
        ],
        "left_out": content["speeds"]["left_out"],
        "pairs": [each["verdict"] for each in (content["pairwise"], *content["rails"]) if each],
        "rounds": [len(run["rounds"]) if run else 0 for run in runs],
        "series": [
            {each["figure"]: each["values"] for each in run["series"]} if run else {}
            for run in runs
        ],
        "foreign": [
            [each["conditions"]["foreign_share"] for each in run["rounds"]] if run else []
            for run in runs
        ],
        "figures": [
            [each["figure"], each["node_rank"], round(each["deficit"], 4), round(each["limit"], 4)]
            for each in content["speeds"]["figures"]
        ],
    }


def _flapping(content: dict[str, Any]) -> list[str]:
    """Figures that failed on a node by itself: without a baseline, those that flap."""
    return [
        f"{check['title']} of n{node['node_rank']}"
        for node in content["nodes"]
        for check in (node["validation"]["checks"] if node["validation"] else ())
        if check["group"] == "speeds"
        and check["status"] == "fail"
        and check["id"] != "speed_rounds"
    ]


def _table(lines: Sequence[dict[str, Any]]) -> None:
    """How many rounds of each fault are right."""
    print(f"{'fault':8}{'rounds':>8}{'no result':>14}" + "".join(f"{key:>14}" for key in COUNTED))
    for fault in FAULTS:
        of_fault = [line for line in lines if line["fault"] == fault]
        done = [line for line in of_fault if "error" not in line]
        counts = [sum(bool(line[key]) for line in done) for key in COUNTED]
        columns = [len(of_fault) - len(done), *counts]
        if of_fault:
            print(f"{fault:8}{len(of_fault):8}" + "".join(f"{count:14}" for count in columns))


def main() -> None:
    """Play the rounds that are not in the file yet; print a line each, and the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12, help="of each fault")
    parser.add_argument("--equal", type=int, default=20, help="rounds of equal nodes")
    parser.add_argument("--only", nargs="+", choices=FAULTS, default=list(FAULTS))
    parser.add_argument("--minutes", type=float, default=1e6, help="no round begins after these")
    parser.add_argument("--budget", type=float, default=100.0, help="seconds of each acceptance")
    parser.add_argument("--cpus", type=float, default=0.4, help="quota of each node")
    parser.add_argument(
        "--shares", type=int, default=1024, help="weight of the nodes against what else runs"
    )
    parser.add_argument("--output", type=Path, default=Path("acceptance_rounds.jsonl"))
    parser.add_argument("--here", type=int, default=0, help="acceptances of this machine instead")
    parser.add_argument("--show", choices=FAULTS, help="play one round and print what it prints")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # as Ctrl-C: nothing is left behind
    setting = Setting(options.budget, options.cpus, options.shares)
    if options.show is not None:
        case = Case(options.show, 0)
        out, errors, seconds = play(case, setting, as_json=False)
        print(f"{errors}{out}\n{case.place or 'equal nodes'}, {seconds:.0f} s")
        return
    lines = []
    if options.output.exists():
        lines = [json.loads(line) for line in options.output.read_text().splitlines()]
    if options.here:
        with suppress(KeyboardInterrupt):
            _here(options, lines)
        said = [str(line.get("disposition", "no result")) for line in lines]
        print(", ".join(f"{said.count(each)} {each}" for each in dict.fromkeys(said)))
        return
    with suppress(KeyboardInterrupt):  # the same command goes on behind the last line
        _play_rest(options, setting, lines)
    _table(lines)


def _play_rest(options: argparse.Namespace, setting: Setting, lines: list[dict[str, Any]]) -> None:
    """Play the rounds that are not among ``lines``, and add them: one of each fault after the other,
    so that any number of minutes has some of each."""
    played = {(line["fault"], line["number"]) for line in lines}
    until = time.monotonic() + 60 * options.minutes
    for number in range(max(options.rounds, options.equal)):
        for fault in options.only:
            most = options.equal if fault == "equal" else options.rounds
            if number >= most or (fault, number) in played or time.monotonic() > until:
                continue
            line = _line(Case(fault, number), setting)
            lines.append(line)
            with options.output.open("a") as file:
                file.write(json.dumps(line) + "\n")
            verdict = line.get("verdict", line.get("error"))
            print(f"{fault} {number} ({line['place'] or 'none'}): {verdict}")
            for text in line.get("levels", ()):
                print(f"  {text}", flush=True)


if __name__ == "__main__":
    main()
