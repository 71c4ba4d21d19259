"""What commands take against the least that they could.

::

    python benchmarks/floors.py help      # `torchscale --help` ÷ Python and `import typer`
    python benchmarks/floors.py commands --before ../older   # what a user waits for, of two checkouts
    PYTHONPATH=. python benchmarks/floors.py report   # 10,000 cells; written once, see --keep

The floor of a report is ``report_floor.py``. Those of a sweep and of one cell are in
``sweep_efficiency.py`` (``--ways floor group``, and ``--cells 1`` against a bare torchrun).

All sides run by turns in one run, so that a ratio is of one machine at one time. Modules are
compiled first, as they are in an installation. CPU time is that of the processes: other work on
the machine changes it less than wall time.
"""

from __future__ import annotations

import argparse
import compileall
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from fidelity import describe

from torchscale.util.optional import optional

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
CONFIG = str(ROOT / "benchmark_config.yaml")


@dataclass(frozen=True)
class Cost:
    """Seconds of wall and CPU time that a command took."""

    wall: float
    cpu: float


def run(
    command: Sequence[str], directory: Path = ROOT, variables: Mapping[str, str] | None = None
) -> Cost:
    """Run a command of this project to its end; its output is dropped."""
    before, started = _children_cpu(), time.perf_counter()
    subprocess.run(
        command,
        check=True,
        cwd=directory,
        env={**os.environ, **(variables or {})},
        stdout=subprocess.DEVNULL,
        stderr=None if directory == ROOT else subprocess.DEVNULL,
    )
    return Cost(time.perf_counter() - started, _children_cpu() - before)


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def by_turns(sides: Sequence[Callable[[], Cost]], rounds: int) -> list[list[Cost]]:
    """Costs of each side, run in turns; a first one of each is not counted."""
    for measure in sides:
        measure()
    costs: list[list[Cost]] = [[] for _ in sides]
    for number in range(rounds):
        order = [*zip(costs, sides, strict=True)]
        for found, measure in order[:: -1 if number % 2 else 1]:
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
    sides = [[sys.executable, "-c", text] for text in ("import typer", program)]
    floors, costs = by_turns([partial(run, side) for side in sides], rounds)
    show("torchscale --help", floors, costs)


def measure_report(rounds: int, results: Path, cells: int) -> None:
    """A page of ``cells`` cells, generated in ``results`` unless they are there."""
    if not results.exists():
        from large_report import write_results  # noqa: PLC0415 - needs a browser's library

        print(f"{cells} cells, {write_results(results, cells) / 1e6:.0f} MB of records")
    with tempfile.TemporaryDirectory() as scratch:
        page, out = Path(scratch) / "report.html", Path(scratch) / "floor.html"
        ours = [sys.executable, "-m", "torchscale", "--quiet", "report", str(results)]
        ours += ["--output", str(page)]
        run(ours)
        charts = page.read_text().count("<figure>")
        floor = [sys.executable, str(HERE / "report_floor.py"), str(results), str(page), str(out)]
        floors, costs = by_turns([lambda: run([*floor, str(charts)]), lambda: run(ours)], rounds)
        show(f"report with {charts} charts", floors, costs)


COMMANDS = (
    ("validate", ("validate",), "import torch"),
    (
        "benchmark --dry-run, memory known",
        ("benchmark", CONFIG, "--dry-run"),
        "import typer, rich, yaml",
    ),
    (
        "benchmark --dry-run, the first",
        ("benchmark", CONFIG, "--dry-run"),
        "import torch._dynamo, transformers",
    ),
    ("measure collectives", ("measure", "collectives"), "import torch"),
)
"""Name → command, and what it has to import at least: once, as forks need not import again."""


def measure_commands(rounds: int, before: Path | None, only: str) -> None:
    """CPU time of commands that a user waits for, and of an older checkout's beside them."""
    checkouts = [path for path in (before, ROOT) if path is not None]
    for name, command, floor in COMMANDS:
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            sides: list[Callable[[], Cost]] = [partial(run, [sys.executable, "-c", floor])]
            sides += [
                partial(_run_command, command, path, Path(scratch), keeps="known" in name)
                for path in checkouts
            ]
            floors, *costs = by_turns(sides, rounds)
        for path, found in zip(checkouts, costs, strict=True):
            show(f"{name} ({'before' if path == before else 'now'})", floors, found)


def _run_command(command: Sequence[str], checkout: Path, scratch: Path, *, keeps: bool) -> Cost:
    """Run a command of a checkout. ``keeps``: with what an earlier run of it has kept."""
    cache = scratch / "cache"
    if not keeps:
        shutil.rmtree(cache, ignore_errors=True)
    variables = {"PYTHONPATH": str(checkout), "XDG_CACHE_HOME": str(cache)}
    return run([sys.executable, "-m", "torchscale", *command], scratch, variables)


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("help", "report", "commands"))
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--only", default="", help="commands with this in their name")
    parser.add_argument("--before", type=Path, help="an older checkout, measured by turns")
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--keep", type=Path, default=ROOT / "build" / "large_report")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    compileall.compile_dir(ROOT / "torchscale", quiet=1)
    os.environ["PYTHONPATH"] = str(ROOT)
    if arguments.what == "help":
        measure_help(arguments.rounds or 40)
    elif arguments.what == "commands":
        before = optional(Path.resolve, arguments.before)
        measure_commands(arguments.rounds or 3, before, arguments.only)
    else:
        measure_report(arguments.rounds or 3, arguments.keep.resolve(), arguments.cells)


if __name__ == "__main__":
    main()
