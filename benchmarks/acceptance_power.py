"""What an acceptance of a fleet finds, and how often it accuses equal nodes: a simulation.

Nodes measure figures in rounds; the noise of a round is drawn from what an acceptance on a real
machine left (its ``acceptance.json``: deviations of each figure from its level, heavy tails
included) or from a normal distribution, and levels of sound nodes differ by a normal spread. One node
is slowed. Judged by the code that judges real nodes.

    python benchmarks/acceptance_power.py results/acceptance-…/acceptance.json
    python benchmarks/acceptance_power.py --noise 0.01
    python benchmarks/acceptance_power.py --idle 1000   # idle nodes with two disk levels and drifts
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from torchscale.features.validate.acceptance.judge import judge
from torchscale.features.validate.acceptance.rounds import undisturbed
from torchscale.features.validate.baseline import read_acceptance
from torchscale.features.validate.fleet.speeds import judge_speeds
from torchscale.schema.node.acceptance import (
    AcceptanceRun,
    Baseline,
    Conditions,
    FigureStatus,
    Round,
    Series,
)

NODES = (8, 16, 32, 64, 128, 256, 512, 1024)
LOSSES = (0.05, 0.10, 0.20)
_EQUAL_FOR_A_SLOWED = 4
"""Fleets without a slow node for each with one: false alarms are rare, and need more of them."""
_FAULTS = (FigureStatus.LOW, FigureStatus.FLAPPING)
_QUIET = Conditions(foreign_share=0.0)


def residuals(path: Path, *, every_round: bool) -> dict[str, npt.NDArray[np.float64]]:
    """Deviations of the logarithm of each figure from its mean over rounds, of all parts; widened by
    √(n ÷ (n − 1)), as the mean follows them."""
    run = read_acceptance(path).run
    rounds = range(len(run.rounds)) if every_round else undisturbed(run)
    found: dict[str, list[float]] = {}
    for series in run.series:
        logs = np.log([value for it in rounds if (value := series.values[it]) is not None])
        if len(logs) > 2:
            wide = math.sqrt(len(logs) / (len(logs) - 1))
            found.setdefault(series.figure, []).extend((logs - logs.mean()) * wide)
    return {name: np.asarray(values) for name, values in found.items()}


def a_fleet(
    rng: np.random.Generator,
    noise: dict[str, npt.NDArray[np.float64]],
    *,
    nodes: int,
    rounds: int,
    spread: float,
    loss: float,
) -> dict[int, AcceptanceRun]:
    """Nodes with all figures, node 0 slower in all of them by ``loss``."""
    stamps = tuple(
        Round(started_at="2026-01-01T00:00:00+00:00", seconds=1.0, conditions=_QUIET)
        for _ in range(rounds)
    )
    runs = {}
    for rank in range(nodes):
        factor = 1 - loss if rank == 0 else 1.0
        series = tuple(  # not validated: there are millions
            Series.model_construct(
                figure=name,
                part="node",
                unit="B/s",
                values=tuple(
                    (
                        factor * np.exp(rng.normal(0, spread) + rng.choice(deviations, rounds))
                    ).tolist()
                ),
            )
            for name, deviations in noise.items()
        )
        runs[rank] = AcceptanceRun.model_construct(
            hostname=f"n{rank}",
            device="cpu",
            asked={},
            world_size=1,
            budget_seconds=1.0,
            seconds=1.0,
            ended="budget",
            rounds=stamps,
            series=series,
        )
    return runs


def an_idle_node(rng: np.random.Generator, rounds: int) -> AcceptanceRun:
    """A sound node: figures with a slow drift of up to 3 % and 1 % of noise, and a disk with levels
    10 % apart, each for a while, of which a share that is drawn is the lower one."""
    drifts = {name: rng.uniform(-0.03, 0.03) for name in ("compute fp32", "all-reduce", "training")}
    places = np.linspace(-0.5, 0.5, rounds)
    rates = {name: np.exp(drift * places) for name, drift in drifts.items()}
    for name in ("disk write", "disk read"):
        rates[name] = np.where(rng.random(rounds) < rng.random(), 0.9, 1.0)
    series = tuple(
        Series(
            figure=name,
            part="node",
            unit="B/s",
            values=tuple((1e9 * level * np.exp(rng.normal(0, 0.01, rounds))).tolist()),
        )
        for name, level in rates.items()
    )
    stamp = Round(started_at="2026-01-01T00:00:00+00:00", seconds=1.0, conditions=_QUIET)
    return AcceptanceRun(
        hostname="n0",
        device="cpu",
        asked={},
        world_size=2,
        budget_seconds=1.0,
        seconds=1.0,
        ended="budget",
        rounds=(stamp,) * rounds,
        series=series,
    )


def count_idle(nodes: int, rounds: int) -> None:
    """How many idle nodes have a figure that is a fault, without a baseline and against an earlier
    acceptance of themselves, and in how many two levels are told."""
    rng = np.random.default_rng(2)
    faults = {"no baseline": 0, "an earlier acceptance": 0}
    two_levels = 0
    for _ in range(nodes):
        run = an_idle_node(rng, rounds)
        earlier = Baseline(source="earlier", run=an_idle_node(rng, rounds))
        for name, baseline in zip(faults, (None, earlier), strict=True):
            figures = judge(run, baseline, {})
            faults[name] += any(each.status in _FAULTS for each in figures)
            two_levels += baseline is None and any(each.modes for each in figures)
    print(f"simulation; {nodes} idle nodes, {rounds} rounds; {two_levels} have two levels")
    for name, count in faults.items():
        print(f"against {name}: {count} fail")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "acceptance", type=Path, nargs="?", help="acceptance.json of a real machine"
    )
    parser.add_argument(
        "--noise", type=float, default=0.01, help="without one: standard deviation, normal"
    )
    parser.add_argument("--figures", type=int, default=8, help="without one")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--spread", type=float, default=0.01, help="between sound nodes")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each fleet size")
    parser.add_argument("--nodes", type=int, nargs="*", default=list(NODES))
    parser.add_argument("--idle", type=int, default=0, help="so many idle nodes instead of fleets")
    parser.add_argument("--every-round", action="store_true", help="disturbed rounds too")
    options = parser.parse_args()
    if options.idle:
        count_idle(options.idle, options.rounds)
        return
    if options.acceptance is not None:
        noise = residuals(options.acceptance, every_round=options.every_round)
    else:
        normal = np.random.default_rng(0).normal(0, options.noise, (options.figures, 10_000))
        noise = {f"figure {it}": values for it, values in enumerate(normal)}
    deviations = {name: round(float(values.std()), 4) for name, values in noise.items()}
    print(f"simulation; noise of a round: {deviations}")
    print(f"{options.rounds} rounds, sound nodes differ by {options.spread:.1%} (assumed)")
    print("nodes  equal fleets  blamed  " + "  ".join(f"-{loss:.0%} found" for loss in LOSSES))
    rng = np.random.default_rng(1)
    for nodes in options.nodes:
        fleets = alarms = slowed = 0
        found = dict.fromkeys(LOSSES, 0)
        until = time.monotonic() + options.seconds
        while time.monotonic() < until or slowed < 3:
            fleets += 1
            losses: tuple[float, ...] = (0.0,)
            if fleets % _EQUAL_FOR_A_SLOWED == 0:
                slowed += 1
                losses = (0.0, *LOSSES)
            for loss in losses:
                runs = a_fleet(
                    rng,
                    noise,
                    nodes=nodes,
                    rounds=options.rounds,
                    spread=options.spread,
                    loss=loss,
                )
                low = {each.node_rank for each in judge_speeds(runs, {}).low}
                if loss:
                    found[loss] += 0 in low
                else:
                    alarms += bool(low)
        shares = "  ".join(f"{found[loss] / slowed:9.1%}" for loss in LOSSES)
        print(f"{nodes:5}  {fleets:12}  {alarms:6}  {shares}", flush=True)


if __name__ == "__main__":
    main()
