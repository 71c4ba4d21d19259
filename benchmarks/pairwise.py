"""How often the judgement of all pairs of nodes is right, by simulation: fleets whose bad nodes and
links are known.

Times are drawn from the model (logarithms of nodes, links and noise add up; ``2 nodes, max``: the slower of two bad
nodes bounds their pair). Noise is normal, or with ``--heavy-tails`` of Student's t with 3 degrees of freedom, of the
same standard deviation. Prints for each number of nodes, noise and case the shares of fleets that were judged right,
that were not decided, and in which a sound node or link was blamed::

    python benchmarks/pairwise.py --fleets 200
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from torchscale.features.validate.fleet.pair_judgement import Judgement
from torchscale.features.validate.fleet.pair_regression import Pair
from torchscale.features.validate.fleet.pairwise import judge_pairs
from torchscale.schema.node.fleet import PairwiseStatus

REPEATS = 5
SOUND_SPREAD = 0.01
"""Between sound nodes, standard deviation of the logarithm."""


@dataclass(frozen=True)
class Case:
    """What is wrong with a fleet: node or link → how much more time, as a share."""

    name: str
    nodes: Mapping[int, float] = field(default_factory=dict)
    links: Mapping[Pair, float] = field(default_factory=dict)
    slower_bounds: bool = False


def cases(slow: float) -> tuple[Case, ...]:
    """What is simulated."""
    return (
        Case("nothing"),
        Case("1 link", links={(0, 1): slow}),
        Case("1 node", nodes={1: slow}),
        Case("2 links", links={(0, 1): slow, (2, 3): slow}),
        Case("2 links of a node", links={(0, 1): slow, (0, 2): slow}),
        Case("2 nodes, sum", nodes={0: slow, 1: slow}),
        Case("2 nodes, max", nodes={0: slow, 1: slow}, slower_bounds=True),
        Case("node and link", nodes={0: slow}, links={(1, 2): slow}),
    )


def fleet(
    nodes: int, case: Case, noise: float, seed: int, *, heavy_tails: bool = False
) -> dict[Pair, list[float]]:
    """Times of all pairs."""
    generator = np.random.default_rng(seed)
    sound = generator.normal(0, SOUND_SPREAD, nodes)
    times = {}
    for i in range(nodes):
        for j in range(i + 1, nodes):
            slow = [math.log1p(case.nodes.get(node, 0.0)) for node in (i, j)]
            log = sound[i] + sound[j] + (max(slow) if case.slower_bounds else sum(slow))
            log += math.log1p(case.links.get((i, j), 0.0))
            unit = (
                generator.standard_t(3, REPEATS) / math.sqrt(3)
                if heavy_tails
                else generator.normal(0, 1, REPEATS)
            )
            times[i, j] = np.exp(log + noise * unit).tolist()
    return times


def is_right(case: Case, judgement: Judgement) -> bool:
    """Whether exactly what is bad was named."""
    return bad_nodes(judgement) == sorted(case.nodes) and bad_links(judgement) == sorted(case.links)


def bad_nodes(judgement: Judgement) -> list[int]:
    """Nodes that were named."""
    return sorted(effect.nodes[0] for effect in judgement.nodes if effect.is_bad)


def bad_links(judgement: Judgement) -> list[tuple[int, int]]:
    """Links that were named."""
    return sorted((effect.nodes[0], effect.nodes[1]) for effect in judgement.links if effect.is_bad)


def blames(case: Case, judgement: Judgement) -> bool:
    """Whether something sound was named."""
    return not (
        set(bad_nodes(judgement)) <= set(case.nodes)
        and set(bad_links(judgement)) <= set(case.links)
    )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--fleets", type=int, default=200, help="of each row (200)")
    parser.add_argument("--nodes", type=int, nargs="+", default=[3, 4, 5, 6, 8, 12, 16])
    parser.add_argument(
        "--noise", type=float, nargs="+", default=[0.02, 0.05, 0.10], help="of a time, as a share"
    )
    parser.add_argument(
        "--slow", type=float, default=0.3, help="more time of what is bad, as a share (0.3)"
    )
    parser.add_argument(
        "--heavy-tails", action="store_true", help="noise of Student's t, 3 degrees of freedom"
    )
    parser.add_argument("--clean", action="store_true", help="only fleets without any fault")
    options = parser.parse_args()
    out = sys.stdout
    out.write(
        f"{'nodes':>5} {'noise':>6}  {'bad':<18} {'right':>7} {'not decided':>12} "
        f"{'sound blamed':>13}\n"
    )
    for nodes in options.nodes:
        for noise in options.noise:
            for case in cases(options.slow)[: 1 if options.clean else None]:
                if any(
                    node >= nodes
                    for node in (*case.nodes, *(end for link in case.links for end in link))
                ):
                    continue
                judged = [
                    judge_pairs(
                        nodes, fleet(nodes, case, noise, seed, heavy_tails=options.heavy_tails)
                    )
                    for seed in range(options.fleets)
                ]
                open_ = sum(
                    each.status in (PairwiseStatus.UNCLEAR, PairwiseStatus.CANNOT_TELL)
                    for each in judged
                )
                shares = (
                    sum(is_right(case, each) for each in judged),
                    open_,
                    sum(blames(case, each) for each in judged),
                )
                right, unclear, blamed = (f"{share / options.fleets:.1%}" for share in shares)
                out.write(
                    f"{nodes:>5} {noise:>6.0%}  {case.name:<18} {right:>7} {unclear:>12} "
                    f"{blamed:>13}\n"
                )
                out.flush()
    large = Case(
        "large",
        nodes={64: options.slow},
        links=dict.fromkeys(((0, 1), (5, 77), (100, 127)), options.slow),
    )
    for noise in options.noise:
        times = fleet(128, large, noise, 0, heavy_tails=options.heavy_tails)
        begun = time.perf_counter()
        judgement = judge_pairs(128, times)
        seconds = time.perf_counter() - begun
        out.write(
            f"128 nodes, noise {noise:.0%}, bad: node 64 and three links: named nodes "
            f"{bad_nodes(judgement)}, "
        )
        out.write(f"links {bad_links(judgement)}, {judgement.status.value}, in {seconds:.2f} s\n")


if __name__ == "__main__":
    main()
