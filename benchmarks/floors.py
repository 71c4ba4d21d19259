"""What commands take against the least that they could.

::

    python benchmarks/floors.py help      # `torchscale --help` ÷ Python and `import typer`
    PYTHONPATH=. python benchmarks/floors.py report   # 10,000 cells; written once, see --keep

The floor of a report is ``report_floor.py``. Those of a sweep and of one cell are in
``sweep_efficiency.py`` (``--ways floor group``, and ``--cells 1`` against a bare torchrun).

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
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fidelity import describe

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent


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


def measure_report(rounds: int, results: Path, cells: int) -> None:
    """A page of ``cells`` cells, generated in ``results`` unless they are there."""
    if not results.exists():
        from large_report import write_results  # noqa: PLC0415 - needs a browser's library

        print(f"{cells} cells, {write_results(results, cells) / 1e6:.0f} MB of records")
    with tempfile.TemporaryDirectory() as scratch:
        page, out = Path(scratch) / "report.html", Path(scratch) / "floor.html"
        ours = [sys.executable, "-m", "torchscale", "report", str(results), "--output", str(page)]
        run(ours)
        charts = page.read_text().count("<figure>")
        floor = [sys.executable, str(HERE / "report_floor.py"), str(results), str(page), str(out)]
        floors, costs = by_turns(lambda: run([*floor, str(charts)]), lambda: run(ours), rounds)
        show(f"report with {charts} charts", floors, costs)


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("help", "report"))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, default=ROOT / "build" / "large_report")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(ROOT / "torchscale", quiet=1)
    os.environ["PYTHONPATH"] = str(ROOT)
    if arguments.what == "help":
        measure_help(arguments.rounds or 40)
    else:
        measure_report(arguments.rounds or 3, arguments.keep.resolve(), arguments.cells)


if __name__ == "__main__":
    main()
