"""The strategies that a search compared, for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchscale.features.decide.tune.export_schema import StrategyExport, TuningExport
from torchscale.features.decide.tune.labels import format_gain
from torchscale.report.table import Column, Table
from torchscale.report.values import DASH, TableValue, only_if, optional_text, optional_value
from torchscale.util.units import format_bytes, format_rate

_NAMED = 3
"""Strategies that are named of those left out for the same reason, or of a tie."""


def strategies_table(result: TuningExport) -> Table:
    """Every strategy that was launched, the fastest first; without tokens where samples have
    none."""
    measured = [one for one in result.strategies if one.launches]
    measured.sort(key=lambda one: -math.inf if one.throughput is None else one.throughput)
    with_tokens = any(one.tokens_per_second is not None for one in measured)
    numbers = (
        "memory",
        "samples/s",
        *only_if(with_tokens, "tokens/s"),
        "against the fastest",
        "launches",
    )
    columns = (
        Column("strategy"),
        *(Column(title, numeric=True) for title in numbers),
        Column("result"),
    )
    rows = tuple(_row(one, with_tokens=with_tokens) for one in reversed(measured))
    return Table("", columns, rows)


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


def _row(one: StrategyExport, *, with_tokens: bool) -> tuple[TableValue, ...]:
    memory = DASH
    if one.predicted_bytes is not None:
        memory = TableValue("≥ " * one.predicted_at_least + format_bytes(one.predicted_bytes))
    return (
        TableValue(one.strategy),
        memory,
        optional_value(one.throughput, format_rate),
        *only_if(with_tokens, optional_value(one.tokens_per_second, format_rate)),
        TableValue(optional_text(one.against_fastest, format_gain)),
        TableValue(str(one.launches)),
        TableValue(_result(one)),
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
