"""Scores of a side against the reference: its speed, and how well it scales."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.stats.ratios import LogRatio, mean_ratio, quotient
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.headlines import HEADLINES
from torchscale.features.compare.analysis.pair import (
    CellComparison,
    EfficiencyScore,
    Overall,
    Score,
)
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.state import State


def speed_score(cells: Sequence[CellComparison], overall: Sequence[Overall]) -> Score | None:
    """Speed over the cells that both measured, times the share that was measured; ``None`` where no
    cell was compared by its speed."""
    speeds = [
        cell
        for cell in cells
        if cell.before and cell.before.launches and cell.cell.cell.kind != "memory"
    ]
    ratios = []
    for cell in speeds:
        changes = [change for change in cell.changes if change.metric in HEADLINES]
        if changes:
            ratios.append(
                (
                    mean_ratio([change.ratio for change in changes]),
                    any(one.conditions for one in changes),
                )
            )
    if not ratios:
        return None
    counted = [ratio for ratio, withheld in ratios if not withheld] or [
        ratio for ratio, _ in ratios
    ]
    measured = sum(cell.after is not None and cell.after.state is State.OK for cell in speeds)
    certain = all(
        one.verdict.decided and not one.conditions for one in overall if one.metric in HEADLINES
    )
    return Score(mean_ratio(counted).value, measured, len(speeds), certain)


def efficiency_score(cells: Sequence[CellComparison]) -> EfficiencyScore | None:
    """E(n) = T(n)·n₀ ÷ (T(n₀)·n) on both sides, so that counts cancel: the ratio of throughputs at
    n ÷ that at n₀."""
    series: dict[tuple[str, str], dict[int, LogRatio]] = {}
    for cell in cells:
        ours, theirs = (
            side and as_kind(side.cell, TrainingCell) for side in (cell.before, cell.after)
        )
        speed = [
            change
            for change in cell.changes
            if change.metric is Metric.THROUGHPUT and not change.conditions
        ]
        if ours and theirs and speed and ours.world_size == theirs.world_size:
            series.setdefault((ours.series, theirs.series), {})[ours.world_size] = speed[0].ratio
    ratios = []
    for by_count in series.values():
        smallest, *larger = sorted(by_count)
        if larger:
            ratios.append(
                (
                    quotient(mean_ratio([by_count[count] for count in larger]), by_count[smallest]),
                    len(larger),
                )
            )
    if not ratios:
        return None
    return EfficiencyScore(
        mean_ratio([ratio for ratio, _ in ratios]), sum(count for _, count in ratios)
    )
