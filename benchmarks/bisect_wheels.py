"""``torchscale bisect`` over packages that are built here: how often the right answer is given on
this machine, and in how many launches.

::

    python benchmarks/bisect_wheels.py --cost 0.3 --repeats 20
    python benchmarks/bisect_wheels.py --cost 0.1 --metric wall --directory /tmp/b
    python benchmarks/bisect_wheels.py --case states         # a further version with two states
    python benchmarks/bisect_wheels.py --case together       # two packages, slow only together
    python benchmarks/bisect_wheels.py --case loss           # which version changed the loss
    python benchmarks/bisect_wheels.py --case same --repeats 10   # none did

Twelve versions of a package, of which one adds work; each repeat puts the step at another one. It
runs the real command with wheels from a directory and a cache of its own. ``--cost`` is a share of
the work; of the command, which starts Python first, it is a little less. Of seven losses
four are sums that a version adds up in another way, one scatters from launch to launch, one has its
terms in another order in each version (and a tolerance), and one becomes NaN. What was done is
continued.
``bisect_power.py --folder`` plays with the noise of the launches.
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


_LOSS = """
import math
import random
import struct

def added(terms):
    total = 0.0
    for term in terms:
        total += term
    return total

def rounded(terms):
    return struct.unpack("f", struct.pack("f", added(terms)))[0]

def loss():
    terms = [1 / (number + 1) for number in range(1000)]
    random.Random({order}).shuffle(terms)
    return {loss}
"""
_WAYS = ("added(terms[::-1])", "math.fsum(terms)", "rounded(terms)", "added(terms) + 1e-12")
_PRINTS = (
    "print('loss:', demo.loss())",
    "print({'loss': demo.loss(), 'epoch': 1.0})",
    "import json; print(json.dumps({'step': 3, 'train_loss': demo.loss()}))",
    "print(f'step 3 | lm loss={demo.loss()!r} | loss scale: 1.0')",
)
_KINDS = ("mean", "sum", "tolerance", "sum", "nan", "sum", "sum")
"""Of repeats by turns."""
_SCATTER = 0.05


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
        options: Of the command.
    """

    name: str
    what: str
    ends: tuple[str, str]
    code: str
    write: Callable[[Path], None]
    is_right: Callable[[dict[str, Any]], bool]
    options: tuple[str, ...] = ()


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


def loss(cost: float, repeat: int, first_slow: int) -> Asked:
    """One of twelve changes the loss."""
    del cost
    drawn = random.Random(f"loss {repeat} {first_slow}")
    kind = _KINDS[repeat % len(_KINDS)]
    plain = versions(0, repeat, first_slow)
    scatter = f"added(terms) + random.gauss(0, {_SCATTER})"
    shift = drawn.choice((-1, 1)) * drawn.uniform(2, 3) * _SCATTER
    before, after = {
        "sum": ("added(terms)", drawn.choice(_WAYS)),
        "mean": (scatter, f"{scatter} + {shift!r}"),
        "tolerance": ("added(terms)", "added(terms) + 1e-4"),
        "nan": (drawn.choice(("added(terms)", scatter)), "math.nan"),
    }[kind]
    what = f"since 1.{first_slow}, {kind}: {after}"
    return _losses(
        f"loss-{kind}-{repeat}-{first_slow}",
        what,
        [before if version < first_slow else after for version in range(VERSIONS)],
        kind,
        drawn.choice(_PRINTS),
        plain.is_right,
    )


def same(cost: float, repeat: int, first_slow: int) -> Asked:
    """None of twelve changes the loss."""
    del cost, first_slow
    kind = ("mean", "sum", "mean", "tolerance")[repeat % 4]
    scatter = f" + random.gauss(0, {_SCATTER})" * (kind == "mean")
    return _losses(
        f"same-{kind}-{repeat}",
        f"none, {kind}",
        [f"added(terms){scatter}"] * VERSIONS,
        kind,
        _PRINTS[repeat % len(_PRINTS)],
        lambda result: result["ending"] == "no difference",
    )


def _losses(
    name: str,
    what: str,
    losses: Sequence[str],
    kind: str,
    prints: str,
    is_right: Callable[[dict[str, Any]], bool],
) -> Asked:
    def write(wheels: Path) -> None:
        for version, expression in enumerate(losses):
            order = version if kind == "tolerance" else 0
            body = _LOSS.format(order=order, loss=expression)
            write_wheel(wheels, "demo", f"1.{version}", body)

    options = ("--metric=loss", "--tolerance=1e-6")[: 1 + (kind == "tolerance")]
    ends = ("demo==1.0", f"demo==1.{VERSIONS - 1}")
    return Asked(name, what, ends, f"import demo; {prints}", write, is_right, options)


CASES = {
    "versions": versions,
    "states": states,
    "together": together,
    "loss": loss,
    "same": same,
}


def bisected(asked: Asked, directory: Path, metric: str) -> dict[str, Any]:
    """The result of one bisection."""
    wheels = directory / "wheels"
    if not wheels.exists():
        asked.write(wheels)
    done = subprocess.run(
        [
            sys.executable, "-m", "torchscale", "--quiet", "bisect", *asked.ends,
            f"--wheels={wheels}", f"--cache={directory / 'cache'}",
            f"--output-dir={directory / 'launches'}", *(asked.options or [f"--metric={metric}"]),
            "--json", "--", "python", "-c", asked.code,
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
    noises = [result["noise"] for result in results if result["noise"] is not None]
    noise = f"; noise {min(noises):.1%} to {max(noises):.1%}" if noises else ""
    return (
        f"{sum(right)} of {len(right)} right: {title}; launches with warm-ups: median "
        f"{statistics.median(launches)}, {min(launches)} to {max(launches)}{noise}"
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
            f"{results[-1]['verdict']} {_took(results[-1])}",
            flush=True,
        )
    print(summary(f"{options.case}, {options.cost:.0%}, {options.metric}", right, results))
    for rule in sorted({_rule(result) for result in results} - {""}):
        those = [place for place, result in enumerate(results) if _rule(result) == rule]
        title = f"of these by the rule {rule}"
        print(summary(title, [right[one] for one in those], [results[one] for one in those]))


def _rule(result: dict[str, Any]) -> str:
    """How a loss was compared; empty where time was."""
    return result["change"]["rule"] if result.get("change") else ""


def _took(result: dict[str, Any]) -> str:
    if result["noise"] is None:
        return f"{result['launches']} launches, compared by the rule {_rule(result)}"
    return f"{result['launches']} launches, noise {result['noise']:.1%}"


if __name__ == "__main__":
    main()
