"""The strategies that a search compared, for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchscale.features.decide.tune.export_schema import StrategyExport, TuningExport
from torchscale.features.decide.tune.labels import format_gain
from torchscale.util.optional import optional
from torchscale.util.units import format_bytes, format_rate

HEADINGS = ("strategy", "memory", "samples/s", "tokens/s", "against the fastest", "launches")
_TOKENS = HEADINGS.index("tokens/s")
_NAMED = 3
"""Strategies that are named of those left out for the same reason, or of a tie."""


def strategy_rows(result: TuningExport) -> list[tuple[str, ...]]:
    """Headings, then every strategy that was launched, the fastest first; without tokens where
    samples have none."""
    measured = [one for one in result.strategies if one.launches]
    measured.sort(key=lambda one: -math.inf if one.throughput is None else one.throughput)
    rows = [(*HEADINGS, "result"), *map(_row, reversed(measured))]
    if any(one.tokens_per_second is not None for one in measured):
        return rows
    return [(*row[:_TOKENS], *row[_TOKENS + 1 :]) for row in rows]


def numeric_columns(rows: Sequence[Sequence[str]]) -> tuple[int, ...]:
    """All but the first and the last column."""
    return tuple(range(1, len(rows[0]) - 1))


def left_out_lines(result: TuningExport) -> list[str]:
    """What was not launched or failed and why, those with the same reason together."""
    lines = []
    if result.rank_memory_bytes is not None:
        lines.append(
            "memory: predicted for a rank before any launch (≥: its share of parameters, gradients "
            f"and optimizer states alone); there are {format_bytes(result.rank_memory_bytes)}."
        )
    by_reason: dict[str, list[str]] = {}
    for one in result.strategies:
        if one.state in ("left out", "not launched"):
            by_reason.setdefault(f"{one.state}: {one.reason}", []).append(one.strategy)
        elif one.state == "failed":
            by_reason.setdefault(one.reason, []).append(one.strategy)
    return lines + [f"{_named(names)}: {reason}" for reason, names in by_reason.items()]


def tie_lines(result: TuningExport, winner: str) -> list[str]:
    """Strategies that are not known to be slower than the winner, the nearest first."""
    near = sorted(
        (abs(math.log(one.against_fastest.ratio)), one.strategy, one.against_fastest)
        for one in result.strategies
        if one.state == "tie" and one.against_fastest is not None
    )
    ties = [f"{name} {format_gain(gain)}" for _, name, gain in near]
    if not ties:
        return []
    taken = f"{winner} is the simplest of those that are expected within 1 % of the fastest"
    if not result.winner:
        taken = f"{winner} stays, which no launch shows to be slower"
    return [f"A tie, as far as these launches tell (95 %): {_named(ties)}. {taken}."]


def effort_line(result: TuningExport) -> str:
    """What the search took, against measuring everything."""
    count = sum(trial.launches for trial in result.trials)
    able = sum(one.state != "left out" for one in result.strategies)
    return (
        f"{count:,} launch{'es' * (count != 1)}; three of each of the {able:,} that can run would be "
        f"{result.exhaustive_launches:,}."
    )


def _row(one: StrategyExport) -> tuple[str, ...]:
    memory = "–"
    if one.predicted_bytes is not None:
        memory = "≥ " * one.predicted_at_least + format_bytes(one.predicted_bytes)
    return (
        one.strategy,
        memory,
        optional(format_rate, one.throughput) or "–",
        optional(format_rate, one.tokens_per_second) or "–",
        optional(format_gain, one.against_fastest) or "–",
        str(one.launches),
        _result(one),
    )


def _result(one: StrategyExport) -> str:
    """One word; of those that failed how, without the reason."""
    if one.state != "failed":
        return one.state
    how, _, _ = one.reason.partition(":")
    return how


def _named(names: Sequence[str]) -> str:
    if len(names) <= _NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
