"""What `torchscale compare` says of two measurements of which one is slower by a known factor, by
real launches.

::

    PYTHONPATH=. python benchmarks/comparison_pairs.py --output results/pairs                  # 40 equal pairs
    PYTHONPATH=. python benchmarks/comparison_pairs.py --output results/by-15 --slower 1.15 --pairs 20

Each pair is two results directories of one short cell with three launches each, measured one after
the other; no launch belongs to two pairs. Pairs of one rank and of two, which all-reduce, take
turns. The second side does ``--slower`` times the work of the first in every step. The machine is
left alone, or the first side, the second, or both are measured beside processes that compute, by
turns. Interrupted, the same command goes on where it ended.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torchscale
from torchscale.features.compare.analysis.change import ChangeVerdict, MetricChange
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.pair import CellComparison
from torchscale.features.compare.inputs import load_source
from torchscale.features.compare.text.comparison import (
    format_interval,
    format_undisturbed,
    format_verdict,
)

MODEL = """
import os
import torch

class Work(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(256, 256)
        self.units = int(os.environ["PAIR_UNITS"])

    def make_batch(self, batch_size, generator):
        return {"x": torch.randn(batch_size, 256, generator=generator)}

    def forward(self, x):
        for _ in range(self.units):
            x = x + 0.01 * torch.tanh(self.layer(x))  # gradients do not vanish: denormal numbers take 20 times as long
        return x.pow(2).mean()

def build():
    return Work()
"""
"""A model whose step takes time in proportion to a variable of the environment."""
UNITS = 100
"""Of the first side: steps of some 20 ms."""
LOADS = ((), (0,), (0, 1), (1,))
"""Sides that are measured under load, by turns."""
CONFIG = {
    "models": "pairs_model:build",
    "batch_sizes": [16],
    "device": "cpu",
    "benchmark": {
        "warmup_steps": 5,
        "warmup_seconds": 0.3,
        "warmup_max_seconds": 1.0,
        "measure_seconds": 1.5,
        "repeats": 3,
    },
    "launch": {"threads_per_rank": 1, "timeout_seconds": 120},
}
"""One core a rank: a side of about ten seconds."""
ALLOWED = 0.05
"""Share of equal pairs that may be called different: the level of the test."""
_CONDITIONS = dict(zip(LOADS, ("left alone", "A loaded", "both loaded", "B loaded"), strict=True))
_DIFFERENT = (ChangeVerdict.BETTER, ChangeVerdict.WORSE)


@dataclass(frozen=True)
class Pair:
    """The directories of both sides, which of them are measured under load, and how many ranks
    train."""

    number: int
    sides: tuple[Path, Path]
    loaded: tuple[int, ...]
    ranks: int

    @property
    def condition(self) -> str:
        """What the table calls it."""
        return _CONDITIONS[self.loaded]


def planned_pairs(count: int, output: Path) -> list[Pair]:
    """Each of the loads by turns, for one rank and then for two."""
    pairs = []
    for number in range(count):
        directory = output / f"pair-{number:02}"
        ranks = 1 + number // len(LOADS) % 2
        sides = (directory / "a", directory / "b")
        pairs.append(Pair(number, sides, LOADS[number % len(LOADS)], ranks))
    return pairs


def measure(pair: Pair, slower: float, processes: int) -> None:
    """Both sides, A first; launches that are there are kept."""
    for place, side in enumerate(pair.sides):
        os.environ["PAIR_UNITS"] = str(round(UNITS * slower) if place else UNITS)
        with _load(processes) if place in pair.loaded else _quiet():
            torchscale.benchmark({**CONFIG, "gpu_counts": [pair.ranks]}, output_dir=side)


@contextmanager
def _quiet() -> Iterator[None]:
    yield


@contextmanager
def _load(count: int) -> Iterator[None]:
    """Processes that compute."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def judged(pair: Pair, *, accept_flags: bool = False) -> tuple[CellComparison, MetricChange]:
    """The cell, and its change of throughput.

    Raises:
        SystemExit: a side has no figures.
    """
    sides = [load_source(str(side)) for side in pair.sides]
    found = compare(sides[0], sides[1], accept_flags=accept_flags).decided_by([])
    if not found:
        states = ", ".join(
            f"{side.name}: {cell.state.value}" for side in sides for cell in side.cells
        )
        raise SystemExit(f"pair {pair.number}: nothing to compare ({states})")
    return found[0]


def row(pair: Pair) -> str:
    """A line of the table."""
    cell, change = judged(pair)
    ends = f"{format_interval(change.ratio)} | {format_undisturbed(change)}"
    flagged = " | ".join(
        f"{sum('contended' in (launch.flags or ()) for launch in side.launches)} of "
        f"{len(side.launches)}"
        for side in (cell.before, cell.after)
        if side is not None
    )
    return (
        f"{pair.number} | {pair.ranks} | {pair.condition} | {change.ratio.value - 1:+.1%} | {ends} | "
        f"{format_verdict(change)} | {flagged}"
    )


def print_totals(pairs: list[Pair]) -> int:
    """How often each verdict was given, by condition; returns how many pairs were called
    different."""
    print("\npairs | worse | better | same | unclear | different if the ratios alone decided")
    wrong = 0
    for condition in _CONDITIONS.values():
        members = [pair for pair in pairs if pair.condition == condition]
        counts = Counter(judged(pair)[1].verdict for pair in members)
        accepted = sum(judged(pair, accept_flags=True)[1].verdict in _DIFFERENT for pair in members)
        columns = (
            counts[verdict]
            for verdict in (
                ChangeVerdict.WORSE,
                ChangeVerdict.BETTER,
                ChangeVerdict.SAME,
                ChangeVerdict.UNCLEAR,
            )
        )
        print(f"{len(members)} {condition} | {' | '.join(map(str, columns))} | {accepted}")
        wrong += sum(counts[verdict] for verdict in _DIFFERENT)
    return wrong


def main() -> int:
    """Measure what is missing, then print a line a pair and the totals; 1 where too many were
    called different."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True, help="directory of the results; kept")
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument(
        "--slower", type=float, default=1.0, help="work of a step of B in that of A: 1, 1.05, 2 …"
    )
    parser.add_argument("--load", type=int, default=1, help="processes beside a loaded side")
    parser.add_argument("--minutes", type=float, default=90.0, help="begin no pair after this long")
    arguments = parser.parse_args()
    end = time.monotonic() + 60 * arguments.minutes
    arguments.output.mkdir(parents=True, exist_ok=True)
    (arguments.output / "pairs_model.py").write_text(MODEL)
    os.environ["PYTHONPATH"] = str(arguments.output.resolve())
    done: list[Pair] = []
    print(
        "pair | ranks | machine | change | 95 % interval | undisturbed | verdict | contended, A | contended, B"
    )
    for pair in planned_pairs(arguments.pairs, arguments.output):
        if time.monotonic() > end:
            print(
                f"stopped after {len(done)} of {arguments.pairs} pairs: {arguments.minutes:g} "
                "minutes are over"
            )
            break
        measure(pair, arguments.slower, arguments.load)
        done.append(pair)
        print(row(pair), flush=True)
    different = print_totals(done)
    print(f"{different} of {len(done)} pairs were called different")
    return int(arguments.slower == 1 and different > ALLOWED * len(done))


if __name__ == "__main__":
    raise SystemExit(main())
