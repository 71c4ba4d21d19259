"""How often `torchscale compare` calls equal systems different, and how often it detects a change
of 3 %.

::

    PYTHONPATH=. python benchmarks/comparison.py --noise-from results/a results/b  # with the noise of measured launches
    PYTHONPATH=. python benchmarks/comparison.py                                   # three levels of noise

Simulated: each launch has its own random effect (launch-to-launch noise), and its steps are noisy
and autocorrelated (AR(1)). Its throughput is samples ÷ the summed time of its steps. The comparison
is the code that the command runs. The last column is the result of one t-test over the pooled steps
of all launches. A second table has equal systems of which sides were measured in several sessions,
each with a random effect of its own.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.factories import cells, environment
from torchscale.features.compare.analysis.change import ChangeVerdict
from torchscale.features.compare.analysis.compare import compare
from torchscale.results.reader import read_summary
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.experiment_file import Session
from torchscale.schema.run.result_set import LaunchFigures, ResultCell, ResultSet
from torchscale.schema.state import State

STEPS = 200
CHANGE = 0.03
_CLEAR = (ChangeVerdict.BETTER, ChangeVerdict.WORSE)


@dataclass(frozen=True)
class Noise:
    """Relative standard deviations of launches and of steps within a launch; lag-1 autocorrelation
    of the steps."""

    launch: float
    step: float = 0.05
    autocorrelation: float = 0.5

    def steps(self, launches: int, generator: np.random.Generator) -> NDArray[np.float64]:
        """Seconds of each step of each launch; the mean is about 1."""
        from scipy import signal  # noqa: PLC0415 - a second to import, in tests that need it not

        shocks = generator.normal(0, math.sqrt(1 - self.autocorrelation**2), (launches, STEPS + 50))
        series = signal.lfilter([1], [1, -self.autocorrelation], shocks)[:, 50:]
        effects = generator.normal(0, self.launch, (launches, 1))
        found: NDArray[np.float64] = np.exp(effects + self.step * series)
        return found


@dataclass(frozen=True)
class Rates:
    """Shares of the simulated pairs with each result."""

    called_different: float
    called_worse: float
    pooled_different: float


def simulate(
    noise: Noise, launches: int, pairs: int, change: float, seed: int, family: int = 1
) -> Rates:
    """Simulate pairs. ``change`` is how much slower the other side is, ``family`` how many cells
    are compared at once.

    For a family, a pair counts if any cell, or all together, got the verdict.
    """
    from scipy import stats  # noqa: PLC0415 - as above

    generator = np.random.default_rng(seed)
    plan = cells(batch_sizes=list(range(1, family + 1)), gpu_counts=[1])
    different = worse = pooled = 0
    for _ in range(pairs):
        before = [noise.steps(launches, generator) for _ in plan]
        after = [noise.steps(launches, generator) * (1 + change) for _ in plan]
        verdicts = _verdicts(plan, before, after)
        different += any(verdict in _CLEAR for verdict in verdicts)
        worse += any(verdict is ChangeVerdict.WORSE for verdict in verdicts)
        pooled += any(
            stats.ttest_ind(np.log(new).ravel(), np.log(old).ravel()).pvalue < 0.05
            for old, new in zip(before, after, strict=True)
        )
    return Rates(different / pairs, worse / pairs, pooled / pairs)


def _verdicts(
    plan: Sequence[TrainingCell],
    before: Sequence[NDArray[np.float64]],
    after: Sequence[NDArray[np.float64]],
) -> list[ChangeVerdict]:
    sides = [_side(plan, steps) for steps in (before, after)]
    pair = compare(sides[0], sides[1])
    return [
        *(change.verdict for cell in pair.cells for change in cell.changes),
        *(one.verdict for one in pair.overall),
    ]


def _side(plan: Sequence[TrainingCell], steps: Sequence[NDArray[np.float64]]) -> ResultSet:
    found = []
    for cell, series in zip(plan, steps, strict=True):
        rates = (cell.global_batch_size * STEPS / series.sum(axis=1)).tolist()
        launches = tuple(LaunchFigures(values={"throughput": rate}) for rate in rates)
        found.append(
            ResultCell(
                cell=cell, state=State.OK, device="simulated", torch="none", launches=launches
            )
        )
    return ResultSet(name="simulated", cells=tuple(found))


def measured_noise(directories: Sequence[Path]) -> tuple[Noise, str]:
    """The noise of launches in results directories (median over their cells), and a description of
    its source."""
    spreads, steps, correlations = [], [], []
    launches = 0
    for directory in directories:
        for cell in read_summary(directory).measured:
            figures = cell.figures
            if figures is None or len(figures.launch_samples_per_second) < 3:
                continue
            launches += len(figures.launch_samples_per_second)
            spreads.append(
                statistics.stdev(math.log(rate) for rate in figures.launch_samples_per_second)
            )
            steps.append((figures.steps.p95 - figures.steps.p50) / figures.steps.p50 / 1.645)
            correlations.append(figures.autocorrelation or 0.0)
    if not spreads:
        raise SystemExit("no cell has three launches")
    correlation = min(0.9, max(0.0, statistics.median(correlations)))
    noise = Noise(statistics.median(spreads), statistics.median(steps), correlation)
    return (
        noise,
        f"{launches} launches of {len(spreads)} cells in {', '.join(map(str, directories))}",
    )


def simulate_sessions(
    sides: tuple[Sequence[int], Sequence[int]], spread: float, pairs: int, seed: int
) -> Rates:
    """Equal pairs. ``sides`` are the launches of each session, ``spread`` the relative standard
    deviation of sessions; that of launches is 2 %. ``pooled_different`` is here the share where
    sessions are ignored."""
    generator = np.random.default_rng(seed)
    (cell,) = cells(batch_sizes=[8], gpu_counts=[1])
    different = worse = ignored = 0
    for _ in range(pairs):
        found = [_sessions(cell, sizes, spread, generator) for sizes in sides]
        (change,) = compare(found[0], found[1]).cells[0].changes
        different += change.verdict in _CLEAR
        worse += change.verdict is ChangeVerdict.WORSE
        (change,) = (
            compare(*(one.model_copy(update={"later": ()}) for one in found)).cells[0].changes
        )
        ignored += change.verdict in _CLEAR
    return Rates(different / pairs, worse / pairs, ignored / pairs)


def _sessions(
    cell: TrainingCell, sizes: Sequence[int], spread: float, generator: np.random.Generator
) -> ResultSet:
    """A side; its sessions are days in January."""
    days = [f"2026-01-{day:02}T00:00:00+00:00" for day in range(1, len(sizes) + 1)]
    launches = []
    for day, size in zip(days, sizes, strict=True):
        level = generator.normal(0, spread)
        rates = 100 * np.exp(level + generator.normal(0, 0.02, size))
        launches += [
            LaunchFigures(started_at=day, values={"throughput": rate}) for rate in rates.tolist()
        ]
    first, *later = [
        Session(started_at=day, tool_version="", environment=environment()) for day in days
    ]
    result = ResultCell(cell=cell, state=State.OK, launches=tuple(launches))
    return ResultSet(
        name="simulated",
        created_at=days[0],
        environment=first.environment,
        later=tuple(later),
        cells=(result,),
    )


def print_sessions(pairs: int) -> None:
    """The table of simulated sessions."""
    print(
        "\nsessions x launches | other side | spread of sessions | equal | equal, sessions ignored"
    )
    for sides in (
        ([3] * 2, [3]),
        ([3] * 2, [3] * 2),
        ([3] * 3, [3] * 3),
        ([3] * 5, [3]),
        ([3] * 10, [3]),
        ([1] * 5, [1] * 5),
    ):
        for spread in (0.01, 0.02, 0.06):
            rates = simulate_sessions(sides, spread, pairs, seed=len(sides[0]))
            reference, other = (f"{len(sizes)} x {sizes[0]}" for sizes in sides)
            print(
                f"{reference} | {other} | {spread:.0%} | {rates.called_different:.1%} | "
                f"{rates.pooled_different:.1%}"
            )


def main() -> None:
    """Print a table of the shares."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--noise-from", type=Path, nargs="*", default=[], help="results directories"
    )
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--family", type=int, default=12, help="cells that are compared at once")
    arguments = parser.parse_args()
    noises = [Noise(0.003), Noise(0.01), Noise(0.03)]
    if arguments.noise_from:
        noise, source = measured_noise(arguments.noise_from)
        print(f"measured: {source}: launches {noise.launch:.2%}, steps {noise.step:.1%}, "
              f"autocorrelation {noise.autocorrelation:.2f}")  # fmt: skip
        noises = [*noises, noise]
    print(
        f"{arguments.pairs} pairs each; equal: share called different; slower: share of a "
        f"{CHANGE:.0%} slow-down seen"
    )
    several = f"{arguments.family} cells"
    print(
        f"noise of launches | launches | equal | equal, {several} | slower | slower, {several} | "
        "equal, steps pooled"
    )
    for noise in noises:
        for launches in (2, 3, 5, 10):
            equal = simulate(noise, launches, arguments.pairs, 0.0, seed=launches)
            many = simulate(
                noise, launches, arguments.pairs // 10, 0.0, seed=launches, family=arguments.family
            )
            slower = simulate(noise, launches, arguments.pairs, CHANGE, seed=launches + 100)
            all_slower = simulate(
                noise, launches, arguments.pairs // 10, CHANGE, launches + 100, arguments.family
            )
            print(
                f"{noise.launch:.2%} | {launches} | {equal.called_different:.1%} | "
                f"{many.called_different:.1%} | {slower.called_worse:.1%} | "
                f"{all_slower.called_worse:.1%} | {equal.pooled_different:.1%}"
            )
    print_sessions(arguments.pairs)


if __name__ == "__main__":
    main()
