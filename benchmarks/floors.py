"""What commands take against the least that they could.

::

    python benchmarks/floors.py help      # `torchscale --help` ÷ Python and `import typer`

Both sides run by turns in one run, so that a ratio is of one machine at one time. Modules are
compiled first, as they are in an installation. CPU time is that of the processes: other work on
the machine changes it less than wall time.
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fidelity import describe

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Cost:
    """Seconds of wall and CPU time that a command took."""

    wall: float
    cpu: float


def run(command: Sequence[str]) -> Cost:
    """Run a command of this project to its end; its output is dropped."""
    before, started = _children_cpu(), time.perf_counter()
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    return Cost(time.perf_counter() - started, _children_cpu() - before)


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def by_turns(
    floor: Callable[[], Cost], ours: Callable[[], Cost], rounds: int
) -> tuple[list[Cost], list[Cost]]:
    """Costs of both, run in turns; a first one of each is not counted."""
    floor()
    ours()
    costs: tuple[list[Cost], list[Cost]] = ([], [])
    for number in range(rounds):
        sides = [(costs[0], floor), (costs[1], ours)]
        for found, measure in sides[:: -1 if number % 2 else 1]:
            found.append(measure())
    return costs


def show(what: str, floors: Sequence[Cost], costs: Sequence[Cost]) -> None:
    """Print the medians, and the ratios of the rounds with their 95 % interval."""
    for name in ("wall", "cpu"):
        least = [getattr(cost, name) for cost in floors]
        took = [getattr(cost, name) for cost in costs]
        ratios = [mine / theirs for mine, theirs in zip(took, least, strict=True)]
        print(
            f"{what}, {name}: {statistics.median(took):.4g} s, floor "
            f"{statistics.median(least):.4g} s, {describe(ratios)}"
        )


def measure_help(rounds: int) -> None:
    """``torchscale --help`` against the import of the library that reads command lines."""
    program = (
        "import sys; sys.argv = ['torchscale', '--help']; from torchscale_bench import run; run()"
    )
    floors, costs = by_turns(
        lambda: run([sys.executable, "-c", "import typer"]),
        lambda: run([sys.executable, "-c", program]),
        rounds,
    )
    show("torchscale --help", floors, costs)


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("help",))
    parser.add_argument("--rounds", type=int)
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(ROOT / "torchscale", quiet=1)
    measure_help(arguments.rounds or 40)


if __name__ == "__main__":
    main()
