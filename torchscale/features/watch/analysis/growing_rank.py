"""A rank that takes longer and longer by itself, beside the others."""

from __future__ import annotations

import numpy as np

from torchscale.analysis.diagnosis.shared import COST_FLOOR
from torchscale.analysis.diagnosis.step_windows import block_medians
from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.analysis.stats.levels import line, off_one_change
from torchscale.analysis.stats.peers import medians_of_others
from torchscale.analysis.stats.series import quarter_means
from torchscale.features.watch.analysis.step_log import StepLog
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_seconds

_GROWTH_CORRELATION = 0.6
"""Between time and a rank's excess (Kendall's). A rank that is slow from the middle on has 0.52 and
what chance adds, so that a line must fit better than one change, too."""
_GROWTH_BATCHES = 24
_GROWTH_FLOOR = 0.05
"""Share of the others' own time by which the last quarter exceeds the first."""


def growing_rank(table: JobSteps, log: StepLog) -> Finding | None:
    """A rank that takes longer and longer by itself, beside the others."""
    if len(log.ranks) < 2 or log.steps < _GROWTH_BATCHES * 2:
        return None
    edges = np.linspace(0, len(table), _GROWTH_BATCHES + 1).round().astype(int)
    own = block_medians(table.calm, edges)
    excess = own - medians_of_others(own)
    row = int(np.argmax(excess[:, -_GROWTH_BATCHES // 4 :].mean(axis=1)))
    mine, time = excess[row], np.arange(_GROWTH_BATCHES, dtype=float)
    typical = float(np.median(medians_of_others(own)[row]))
    quarters, grown = quarter_means(mine), line(time, mine)
    grows = quarters[3] - quarters[0] > _GROWTH_FLOOR * typical
    is_line = grown.correlation >= _GROWTH_CORRELATION and grown.off <= off_one_change(mine)
    if not (grows and is_line):
        return None
    step_seconds = float(table.wall.mean())
    cost = float(min(mine.mean(), table.blame[row].mean() / (len(log.ranks) - 1)))
    if cost < COST_FLOOR * step_seconds:
        return None
    rank = log.ranks[row]
    shown = ", ".join(format_seconds(max(0.0, quarter)) for quarter in quarters)
    return Finding(
        kind=FindingKind.STRAGGLER,
        rank=rank,
        cost_percent=cost / step_seconds * 100,
        cost_seconds=cost,
        confidence=Confidence.HIGH,
        summary=f"rank {rank} takes longer and longer by itself, and the others wait for it: "
        f"{shown} a step more than they do, from quarter to quarter of the job",
        evidence=(
            f"correlation with time {grown.correlation:.2f}; a line fits better than one change",
        ),
        advice=f"look for what grows on rank {rank}: memory and garbage collection, logs, caches, "
        "heat of its device, a disk that fills",
    )
