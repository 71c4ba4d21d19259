"""``torchscale bisect`` over packages that are built here: how often the right answer is given on
this machine, and in how many launches.

::

    python benchmarks/bisect_wheels.py --cost 0.3 --repeats 20
    python benchmarks/bisect_wheels.py --cost 0.1 --metric wall --directory /tmp/b
    python benchmarks/bisect_wheels.py --case states         # a further version with two states
    python benchmarks/bisect_wheels.py --case together       # two packages, slow only together

Twelve versions of a package, of which one adds work; each repeat puts the step at another one. It
runs the real command with wheels from a directory and a cache of its own. ``--cost`` is a share of
the work; of the command, which starts Python first, it is a little less. What was done is
continued. ``bisect_power.py --folder`` plays with the noise of the launches.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from tests.features.bisect.wheels import WORK, write_versions, write_wheel  # noqa: E402 - of this checkout

VERSIONS = 12
LOOPS = 4_000_000
"""Some 0.2 s of adding numbers, about ten times the start of Python."""
TIMEOUT_SECONDS = 1800
_TWO_STATES = """
import random

def work():
    total = 0
    for number in range(random.choice({loops})):
        total += number
    return total
"""
_TOGETHER = """
import first

def work():
    total = 0
    for number in range({slow} if first.VERSION == 2 else {fast}):
        total += number
    return total
"""


@dataclass(frozen=True)
class Asked:
    """One bisection.

    Attributes:
        name: Of its directory.
        what: What is slow.
        ends: The good and the bad side.
        code: What the command runs.
        write: Writes its wheels into a directory.
        is_right: Whether a result is.
    """

    name: str
    what: str
    ends: tuple[str, str]
    code: str
    write: Callable[[Path], None]
    is_right: Callable[[dict[str, Any]], bool]


def versions(cost: float, repeat: int, first_slow: int) -> Asked:
    """One of twelve versions adds work."""
    return Asked(
        f"{cost:g}-{repeat}-{first_slow}",
        f"since 1.{first_slow}",
        ("demo==1.0", f"demo==1.{VERSIONS - 1}"),
        "import demo; demo.work()",
        lambda wheels: write_versions(
            wheels, versions=VERSIONS, first_slow=first_slow, extra=cost, loops=LOOPS
        ),
        lambda result: result["answers"] == [[f"demo 1.{first_slow}"]],
    )


def states(cost: float, repeat: int, first_slow: int) -> Asked:
    """One of twelve adds work, and a neighbor of it has launches of both kinds: the hardest place,
    since it is then one of those that the answer rests on."""
    other = first_slow - 1 if first_slow > 1 else first_slow + 1
    plain = versions(cost, repeat, first_slow)

    def write(wheels: Path) -> None:
        plain.write(wheels)
        loops = (LOOPS, round(LOOPS * (1 + cost)))
        write_wheel(wheels, "demo", f"1.{other}", _TWO_STATES.format(loops=loops))

    def is_right(result: dict[str, Any]) -> bool:
        """With two states before the first slow version, that one is named (as one with two states,
        or as unsteady), and that no launch tells both apart; with two states after it the answer is
        exact."""
        named = [
            one["label"]
            for one in result["environments"]
            if one["state"] in ("two states", "unsteady")
        ]
        answers = [label for (label,) in result["answers"]]
        right, neighbor = f"demo 1.{first_slow}", f"demo 1.{other}"
        if other > first_slow:
            return answers == [right] and named in ([], [neighbor])
        return named == [neighbor] and sorted(answers) in ([right], sorted([right, neighbor]))

    what = f"since 1.{first_slow}, 1.{other} has two states"
    return Asked(f"states-{plain.name}", what, plain.ends, plain.code, write, is_right)


def together(cost: float, repeat: int, first_slow: int) -> Asked:
    """Two packages that changed, and only both new are slow."""
    del first_slow

    def write(wheels: Path) -> None:
        for version in (1, 2):
            write_wheel(wheels, "first", str(version), f"VERSION = {version}")
        write_wheel(wheels, "second", "1", WORK.format(loops=LOOPS))
        slow = round(LOOPS * (1 + cost))
        write_wheel(wheels, "second", "2", _TOGETHER.format(slow=slow, fast=LOOPS))

    return Asked(
        f"together-{cost:g}-{repeat}",
        "first 2 with second 2",
        ("first==1,second==1", "first==2,second==2"),
        "import second; second.work()",
        write,
        lambda result: result["kind"] == "together",
    )


CASES = {"versions": versions, "states": states, "together": together}


def bisected(asked: Asked, directory: Path, metric: str) -> dict[str, Any]:
    """The result of one bisection."""
    wheels = directory / "wheels"
    if not wheels.exists():
        asked.write(wheels)
    done = subprocess.run(
        [
            sys.executable, "-m", "torchscale", "--quiet", "bisect", *asked.ends,
            f"--wheels={wheels}", f"--cache={directory / 'cache'}",
            f"--output-dir={directory / 'launches'}", f"--metric={metric}", "--json", "--",
            "python", "-c", asked.code,
        ],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )  # fmt: skip
    if not done.stdout:
        raise SystemExit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def summary(title: str, right: Sequence[bool], results: Sequence[dict[str, Any]]) -> str:
    """A line over all repeats."""
    launches = [result["launches"] for result in results]
    noises = [result["noise"] for result in results]
    return (
        f"{sum(right)} of {len(right)} right: {title}; launches with warm-ups: median "
        f"{statistics.median(launches)}, {min(launches)} to {max(launches)}; noise "
        f"{min(noises):.1%} to {max(noises):.1%}"
    )


def main() -> None:
    """Bisect as often as asked, and print a line each and a summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--case", choices=CASES, default="versions")
    parser.add_argument("--cost", type=float, default=0.3)
    parser.add_argument("--metric", default="cpu")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path, default=Path("results/bisect-wheels"))
    options = parser.parse_args()
    chosen = random.Random(options.seed)
    right: list[bool] = []
    results = []
    for repeat in range(options.repeats):
        asked = CASES[options.case](options.cost, repeat, chosen.randrange(1, VERSIONS))
        place = options.directory / f"{options.metric}-{asked.name}"
        results.append(bisected(asked, place, options.metric))
        right.append(asked.is_right(results[-1]))
        print(
            f"{repeat + 1}: {asked.what}: {'right' if right[-1] else 'NOT RIGHT'}: "
            f"{results[-1]['verdict']} {results[-1]['launches']} launches, noise "
            f"{results[-1]['noise']:.1%}",
            flush=True,
        )
    print(summary(f"{options.case}, {options.cost:.0%}, {options.metric}", right, results))


if __name__ == "__main__":
    main()
