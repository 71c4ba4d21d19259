"""How often `torchscale compare -- 'A' 'B'` calls equal commands different, how often it finds a
slower one, and after how many launches it ends.

::

    PYTHONPATH=. python benchmarks/comparison_commands.py

Simulated: each launch has a step time with noise, normal on logarithms or with heavy tails
(Student's t with three degrees of freedom). When it looks, what it compares and when it ends is the
code that the command runs. The last column is for a rule that looks after each launch from the third
on, and ends as soon as the verdict is decided.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tests.factories import cells
from torchscale.features.compare.analysis.change import MIN_LAUNCHES, ChangeVerdict
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.pair import Pair
from torchscale.features.compare.commands.stopping import is_clear, is_look
from torchscale.schema.run.result_set import LaunchFigures, ResultCell, ResultSet
from torchscale.schema.state import State

MOST = 20
NOISES = (0.01, 0.03, 0.05, 0.1)
SLOWER = (0.0, 0.05, 0.15)
_CELL = cells(batch_sizes=[1], gpu_counts=[1])[0]
Times = NDArray[np.float64]


@dataclass(frozen=True)
class Played:
    """How a comparison ended: its verdict, after how many launches of each command."""

    verdict: ChangeVerdict
    launches: int

    @property
    def is_different(self) -> bool:
        """Whether it calls them different."""
        return self.verdict in (ChangeVerdict.BETTER, ChangeVerdict.WORSE)


def play(before: Times, after: Times, ends: Callable[[int, Pair], bool]) -> Played:
    """Launch until ``ends``, or there are no more launches. Rates of launches, in their order."""
    launches = MIN_LAUNCHES
    pair = _pair(before[:launches], after[:launches])
    while launches < len(before) and not ends(launches, pair):
        launches += 1
        pair = _pair(before[:launches], after[:launches])
    return Played(pair.overall[0].verdict, launches)


def planned(launches: int, pair: Pair) -> bool:
    """The rule of the command."""
    return is_look(launches, MOST) and is_clear([pair])


def eager(launches: int, pair: Pair) -> bool:
    """As soon as there is a verdict."""
    del launches
    return pair.overall[0].verdict.decided


def _pair(before: Times, after: Times) -> Pair:
    return compare(_side(before), _side(after))


def _side(rates: Times) -> ResultSet:
    launches = tuple(LaunchFigures(values={"throughput": float(rate)}) for rate in rates)
    cell = ResultCell(
        cell=_CELL, state=State.OK, device="simulated", torch="none", launches=launches
    )
    return ResultSet(name="simulated", cells=(cell,))


def draw(noise: float, tails: bool, generator: np.random.Generator) -> Times:
    """Rates of launches of one command."""
    shocks = generator.standard_t(3, MOST) if tails else generator.standard_normal(MOST)
    return np.asarray(np.exp(noise * shocks))


def row(noise: float, tails: bool, slower: float, pairs: int) -> str:
    """A line of the table."""
    generator = np.random.default_rng(1)
    by_rule: dict[str, list[Played]] = {"planned": [], "eager": []}
    for _ in range(pairs):
        before, after = (draw(noise, tails, generator) for _ in range(2))
        after = after / (1 + slower)
        by_rule["planned"].append(play(before, after, planned))
        by_rule["eager"].append(play(before, after, eager))
    played = by_rule["planned"]
    shares = [
        sum(one.is_different for one in played),
        sum(one.verdict is ChangeVerdict.SAME for one in played),
        sum(one.is_different for one in by_rule["eager"]),
    ]
    different, same, eagerly = (f"{share / pairs:.1%}" for share in shares)
    mean = sum(one.launches for one in played) / pairs
    kind = "t, 3 d.f." if tails else "normal"
    return f"{noise:.0%} {kind} | {slower:.0%} | {different} | {same} | {mean:.1f} | {eagerly}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=2000)
    pairs = parser.parse_args().pairs
    print("noise | slower | called different | same | launches of each | looking after each launch")
    print("--- | --- | --- | --- | --- | ---")
    for slower in SLOWER:
        for noise in NOISES:
            print(row(noise, False, slower, pairs), flush=True)
    print(row(0.03, True, 0.0, pairs))


if __name__ == "__main__":
    main()
