"""Error and coverage of ``torchscale predict`` on a table of published throughput, against simple
laws.

::

    python benchmarks/prediction.py --table published.csv

The table has a row for each measurement: ``series_id`` (or ``series``), ``gpus``, ``nodes``,
``throughput``; optional ``source``, ``model`` and ``unit``. Every law is fitted to the smaller
counts of a series, two or more, and judged at each larger one, on the cases that torchscale
answers. The multiples of the interval are also derived with each source, and each model, left out,
and the coverage on what was left out is printed.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.optimize import nnls

from torchscale.features.decide.forecast.law import fit_law
from torchscale.features.decide.forecast.predict import (
    HIGH_MULTIPLE,
    LOW_MULTIPLE,
    refuse_count,
    refuse_series,
)
from torchscale.features.decide.forecast.series import MeasuredCount, make_series

TAIL = 0.05
Points = Sequence[MeasuredCount]
Law = Callable[[Points, int, int], float]
"""Points, GPUs and nodes → throughput."""


@dataclass(frozen=True)
class Case:
    """A count that was held out: ``errors`` by law as shares, ``score`` the error in deviations of
    the law."""

    source: str
    model: str
    factor: float
    across_nodes: bool
    errors: Mapping[str, float]
    score: float
    deviation: float

    @property
    def covered(self) -> bool:
        """Whether the shipped interval holds what was measured."""
        return -LOW_MULTIPLE <= self.score <= HIGH_MULTIPLE


def main() -> None:
    """Print the tables in Markdown."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=Path, required=True)
    cases, refused, reasons = held_out(read(parser.parse_args().table))
    asked = len(cases) + refused
    print(
        f"{asked} held-out counts, {refused} refused ({refused / asked:.0%}), {len(cases)} "
        "answered\n"
    )
    for reason, count in sorted(reasons.items()):
        print(f"- refused, {reason}: {count}")
    _print_laws(cases)
    _print_coverage(
        "factor",
        cases,
        lambda case: f"{case.factor:g}×, {'more nodes' if case.across_nodes else 'in a node'}",
    )
    _print_left_out("source", cases, lambda case: case.source)
    _print_left_out("model", cases, lambda case: case.model)


def read(table: Path) -> list[tuple[str, str, list[MeasuredCount]]]:
    """Source, model and points of every series with two counts."""
    series: dict[str, list[dict[str, str]]] = {}
    with table.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            series.setdefault(row.get("series_id") or row.get("series") or "", []).append(row)
    found = []
    for rows in series.values():
        by_count: dict[tuple[int, int], list[float]] = {}
        for row in rows:
            gpus, rate = int(row["gpus"]), float(row["throughput"])
            per_gpu = "/gpu" in (row.get("unit") or "").lower()
            nodes = int(row.get("nodes") or 0) or -(-gpus // 8)
            by_count.setdefault((gpus, nodes), []).append(rate * gpus if per_gpu else rate)
        points = [
            MeasuredCount(gpus, nodes, tuple(rates))
            for (gpus, nodes), rates in sorted(by_count.items())
        ]
        if len(points) > 1:
            found.append((rows[0].get("source") or "", rows[0].get("model") or "", points))
    return found


def held_out(
    table: Iterable[tuple[str, str, list[MeasuredCount]]],
) -> tuple[list[Case], int, dict[str, int]]:
    """The answered cases, how many were refused, and how often for which reason."""
    cases, refused = [], 0
    reasons: dict[str, int] = {}
    for source, model, points in table:
        for count in range(1, len(points)):
            known = make_series(
                "", points[:count], gpus_per_node=max(math.ceil(point.local) for point in points)
            )
            for point in points[count:]:
                reason = refuse_series(known) or refuse_count(known, point.gpus)
                if reason is not None:
                    refused += 1
                    short = _short(reason)
                    reasons[short] = reasons.get(short, 0) + 1
                    continue
                cases.append(_case(source, model, known.points, point))
    return cases, refused, reasons


def _short(reason: str) -> str:
    for text in ("one count", "only one node", "falls", "rises", "more than 16", "already loses"):
        if text in reason:
            return text
    return "other"


def _case(source: str, model: str, points: Points, held: MeasuredCount) -> Case:
    errors = {
        name: law(points, held.gpus, held.nodes) / held.throughput - 1 for name, law in LAWS.items()
    }
    fit = fit_law(points)
    deviation = fit.deviation(held.gpus, held.nodes)
    score = math.log(held.throughput / fit.throughput(held.gpus, held.nodes)) / deviation
    more_nodes = held.nodes > points[-1].nodes
    return Case(source, model, held.gpus / points[-1].gpus, more_nodes, errors, score, deviation)


def _hold(points: Points, gpus: int, nodes: int) -> float:
    del nodes
    return gpus / points[-1].cost


def _linear(points: Points, gpus: int, nodes: int) -> float:
    """Least squares of throughput on GPUs, as a straight line."""
    del nodes
    slope, base = np.polyfit(
        [point.gpus for point in points], [point.throughput for point in points], 1
    )
    return max(float(base + slope * gpus), points[-1].throughput * 0.1)


def _log(points: Points, gpus: int, nodes: int) -> float:
    """The last two counts' cost per sample, going on with the logarithm of the count."""
    del nodes
    before, last = points[-2], points[-1]
    growth = (last.cost - before.cost) / math.log(last.gpus / before.gpus)
    return gpus / max(last.cost + growth * math.log(gpus / last.gpus), last.cost * 0.1)


def _ring(points: Points, gpus: int, nodes: int) -> float:
    """The last two counts' cost per sample, going on as (k - 1) ÷ k: of nodes where these grow,
    else of GPUs."""
    before, last = points[-2], points[-1]
    by_node = last.nodes > before.nodes
    a, b, c = (before.nodes, last.nodes, nodes) if by_node else (before.gpus, last.gpus, gpus)
    growth = (last.cost - before.cost) / (1 / a - 1 / b)
    return gpus / max(last.cost + growth * (1 / b - 1 / c), last.cost * 0.1)


def _amdahl(points: Points, gpus: int, nodes: int) -> float:
    del nodes
    return _costs(points, gpus, lambda n: [1.0, n - 1.0])


def _usl(points: Points, gpus: int, nodes: int) -> float:
    """The Universal Scalability Law: n ÷ throughput = a + b(n - 1) + c·n(n - 1)."""
    del nodes
    return _costs(points, gpus, lambda n: [1.0, n - 1.0, n * (n - 1.0)])


def _costs(points: Points, gpus: int, terms: Callable[[int], list[float]]) -> float:
    """Non-negative least squares of relative errors."""
    design = np.array([terms(point.gpus) for point in points]) / np.array(
        [[point.cost] for point in points]
    )
    weights, _ = nnls(design, np.ones(len(points)))
    return gpus / float(np.dot(terms(gpus), weights))


def _torchscale(points: Points, gpus: int, nodes: int) -> float:
    return fit_law(points).throughput(gpus, nodes)


LAWS: dict[str, Law] = {
    "torchscale": _torchscale,
    "hold": _hold,
    "ring": _ring,
    "log": _log,
    "linear": _linear,
    "Amdahl": _amdahl,
    "USL": _usl,
}


def _print_laws(cases: Sequence[Case]) -> None:
    for title, chosen in (
        ("all", cases),
        ("more nodes", [case for case in cases if case.across_nodes]),
        ("in a node", [case for case in cases if not case.across_nodes]),
    ):
        print(f"\nError, {title}: mean / 90th percentile / worst\n")
        factors = sorted({case.factor for case in chosen})
        few = {factor: [case for case in chosen if case.factor == factor] for factor in factors}
        print("| law |" + "".join(f" {factor:g}× ({len(few[factor])}) |" for factor in factors))
        print("|---|" + "---|" * len(factors))
        for name in LAWS:
            print(
                f"| {name} |"
                + "".join(
                    f" {_errors([abs(case.errors[name]) for case in few[f]])} |" for f in factors
                )
            )


def _errors(errors: Sequence[float]) -> str:
    return f"{np.mean(errors):.1%} / {np.quantile(errors, 0.9):.1%} / {max(errors):.1%}"


def _print_coverage(title: str, cases: Sequence[Case], key: Callable[[Case], str]) -> None:
    print(
        f"\nInterval as shipped, by {title}\n\n| {title} | cases | coverage | median width "
        "|\n|---|---|---|---|"
    )
    for name in [*sorted({key(case) for case in cases}), "all"]:
        chosen = [case for case in cases if name in (key(case), "all")]
        widths = [
            math.exp(HIGH_MULTIPLE * c.deviation) - math.exp(-LOW_MULTIPLE * c.deviation)
            for c in chosen
        ]
        covered = np.mean([case.covered for case in chosen])
        print(f"| {name} | {len(chosen)} | {covered:.0%} | {np.median(widths):.1%} |")


def _print_left_out(title: str, cases: Sequence[Case], key: Callable[[Case], str]) -> None:
    """Multiples derived without each group, and what they cover of it."""
    print(f"\nInterval derived with each {title} left out\n")
    print(f"| {title} | cases | mean error | low | high | coverage |\n|---|---|---|---|---|---|")
    covered = 0
    ends = []
    for name in sorted({key(case) for case in cases}):
        others = [case.score for case in cases if key(case) != name]
        own = [case for case in cases if key(case) == name]
        if not others:
            continue
        low, high = np.quantile(others, [TAIL, 1 - TAIL])
        inside = sum(low <= case.score <= high for case in own)
        covered += inside
        ends.append((low, high))
        error = np.mean([abs(case.errors["torchscale"]) for case in own])
        print(
            f"| {name} | {len(own)} | {error:.1%} | {low:.2f} | {high:.2f} | "
            f"{inside / len(own):.0%} |"
        )
    if ends:
        low, high = np.mean(ends, axis=0)
        print(
            f"| mean, all | {len(cases)} | | {low:.2f} | {high:.2f} | {covered / len(cases):.0%} |"
        )


if __name__ == "__main__":
    main()
