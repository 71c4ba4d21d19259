"""How soon `torchscale history` finds a planted change, how often it reports one that is none, and
how long it takes.

::

    PYTHONPATH=. nice python benchmarks/history.py rates     # tables of docs/history.md, some minutes
    PYTHONPATH=. python benchmarks/history.py time           # 500 run folders of 20 cells: build, add again, page

Simulated: launches differ by 1.5 % (standard deviation, as measured on a shared machine of two
cores) with heavy tails (Student's t with three degrees of freedom), runs are independent. The
search is the code that the command runs. The run folders of `time` are real ones in all but their
figures.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.factories import experiment, experiment_file, launch_record, machine, trained
from tests.histories import night
from torchscale.analysis.stats.change_points import MIN_LENGTH, NoisySeries, change_points
from torchscale.plan.expand import make_plan
from torchscale.store.run_folder import RunFolder

NOISE = 0.015
CELLS = 20
BEFORE = 60
"""Runs before the change."""
AFTER = (5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 40)
"""Runs after it at which the history is looked at."""
NEAR = 5
"""Runs between a planted change and the place where it is reported."""


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("what", choices=("rates", "time"))
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument(
        "--histories", type=int, default=30, help="clean histories, each looked at every night"
    )
    parser.add_argument("--nights", type=int, default=365)
    parser.add_argument("--runs", type=int, default=500)
    options = parser.parse_args()
    if options.what == "rates":
        print_found(options.trials)
        print_false_alarms(options.histories, options.nights)
    else:
        print_times(options.runs)


def simulated(random: np.random.Generator, runs: int, launches: int) -> NDArray[np.float64]:
    """Logarithms of the levels of all cells, shape (cells, runs)."""
    noise = NOISE * random.standard_t(3, (CELLS, runs, launches)) / math.sqrt(3)
    levels: NDArray[np.float64] = noise.mean(axis=2)
    return levels


def searched(levels: NDArray[np.float64], launches: int) -> list[tuple[int, ...]]:
    """Change points of each cell."""
    variances = (NOISE**2 / launches if launches > 1 else 0.0,) * levels.shape[1]
    return change_points([NoisySeries(tuple(row), variances) for row in levels.tolist()])


def print_found(trials: int) -> None:
    """How many runs after a change of one cell of 20 it is first reported."""
    print(f"Change of one cell of {CELLS} after {BEFORE} runs, {trials} trials")
    print(
        "| launches | change | found within 5 runs | 10 | 20 | 40 | median runs until found | "
        "place off by (median) |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for launches in (1, 3):
        for change in (0.03, 0.05, 0.10):
            random = np.random.default_rng(round(1e4 * change) + launches)
            waits, offsets = [], []
            for _ in range(trials):
                wait, offset = runs_until_found(random, change, launches)
                waits.append(wait)
                offsets += [] if offset is None else [offset]
            shares = " | ".join(
                f"{np.mean(np.array(waits) <= limit):.0%}" for limit in (5, 10, 20, 40)
            )
            half = float(np.median(waits))
            print(
                f"| {launches} | {change:.0%} | {shares} | "
                f"{'more than 40' if math.isinf(half) else f'{half:.0f}'} | "
                f"{np.median(offsets) if offsets else math.nan:.0f} |",
                flush=True,
            )


def runs_until_found(
    random: np.random.Generator, change: float, launches: int
) -> tuple[float, int | None]:
    """The first look at which it is reported near its place, and how far from it."""
    levels = simulated(random, BEFORE + AFTER[-1], launches)
    levels[0, BEFORE:] += math.log1p(-change)
    for after in AFTER:
        places = searched(levels[:, : BEFORE + after], launches)[0]
        near = [abs(place - BEFORE) for place in places if abs(place - BEFORE) <= NEAR]
        if near:
            return after, min(near)
    return math.inf, None


def print_false_alarms(histories: int, nights: int) -> None:
    """Reports in histories without a change, each looked at after every run."""
    print(
        f"\n{histories} histories of {CELLS} cells without a change, looked at after each of "
        f"{nights} runs"
    )
    print(
        "| launches | histories with a report at any time | reports per history and year | nights "
        "with a report |"
    )
    print("|---|---|---|---|")
    for launches in (1, 3):
        random = np.random.default_rng(launches)
        reported, alarms, new = 0, 0, 0
        for _ in range(histories):
            levels = simulated(random, nights, launches)
            seen: set[tuple[int, int]] = set()
            for looked in range(2 * MIN_LENGTH, nights + 1):
                found = {(cell, at) for cell, at in _all(searched(levels[:, :looked], launches))}
                alarms += bool(found)
                fresh = {
                    one
                    for one in found
                    if not any(one[0] == old[0] and abs(one[1] - old[1]) <= NEAR for old in seen)
                }
                new += len(fresh)
                seen |= found
            reported += bool(seen)
        looks = histories * (nights - 2 * MIN_LENGTH + 1)
        print(
            f"| {launches} | {reported} of {histories} | {new / histories * 365 / nights:.2f} | "
            f"{alarms / looks:.2%} |",
            flush=True,
        )


def _all(places: Sequence[tuple[int, ...]]) -> Iterator[tuple[int, int]]:
    for cell, of_cell in enumerate(places):
        for place in of_cell:
            yield cell, place


def print_times(runs: int) -> None:
    """Seconds of the command on this machine, with all of its start."""
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        write_runs(directory / "results", runs)
        print(f"{runs} run folders of {CELLS} cells")
        for what, arguments in (
            ("build the file from the folders", ["results", "--db", "h.sqlite", "--json"]),
            ("the same again, nothing new", ["results", "--db", "h.sqlite", "--json"]),
            ("table from the file", ["--db", "h.sqlite"]),
            ("page from the file", ["--db", "h.sqlite", "--html", "h.html"]),
        ):
            begun = time.perf_counter()
            command = [sys.executable, "-m", "torchscale", "-q", "history", *arguments]
            done = subprocess.run(
                command, cwd=directory, capture_output=True, text=True, check=True, timeout=1800
            )
            print(f"{what}: {time.perf_counter() - begun:.2f} s", flush=True)
        print(done.stdout.strip().splitlines()[-1])
        for name in ("h.sqlite", "h.html"):
            print(f"{name}: {(directory / name).stat().st_size / 1e6:.1f} MB")


def write_runs(directory: Path, runs: int) -> None:
    """Run folders of three launches a cell; in the last two fifths, three cells are 3, 5 and 10 %
    slower."""
    random = np.random.default_rng(500)
    config = experiment(batch_sizes=[8 * (number + 1) for number in range(CELLS)], gpu_counts=[1])
    plan = make_plan(config, machine()).cells
    for number in range(runs):
        folder = RunFolder.create(
            directory / f"night-{number}", experiment_file(config, plan, created_at=night(number))
        )
        for entry, change in zip(plan, (0.03, 0.05, 0.10, *[0.0] * CELLS), strict=False):
            cell = trained(entry)
            for launch in range(3):
                noise = math.exp(NOISE * random.standard_t(3) / math.sqrt(3))
                seconds = noise / (1 - (change if number >= runs * 3 // 5 else 0.0))
                path = folder.launch_directory(cell, launch)
                path.mkdir(parents=True)
                (path.parent / "cell.json").write_text(cell.model_dump_json())
                record = launch_record(cell, launch, (seconds,) * 10, started_at=night(number))
                (path / "record.json").write_text(record.model_dump_json())


if __name__ == "__main__":
    main()
