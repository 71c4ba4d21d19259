"""A rank that nearly all waits are for, however its lateness is spread over steps."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.diagnosis.shared import EXPLAINED_SHARE
from torchscale.analysis.diagnosis.signals import MIN_COMPARED
from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.analysis.stats.series import is_steady, quarter_means
from torchscale.schema.profiles.finding import Abstention, Confidence, Finding, FindingKind
from torchscale.util.units import format_percent, format_seconds

LATE_BLAME = 0.9
"""Share of all waits: ranks that only scatter are last in turn, two of them half of the time
each."""
LATE_FLOOR = 0.05
"""Share of the step that the others wait. Ranks do not leave a collective at the same moment, and
one of two may be the later one by some per cent for as long as a run lasts."""


def late_rank(
    table: JobSteps,
    ranks: tuple[int, ...],
    found: Sequence[Finding],
    doubts: Sequence[Abstention],
) -> Finding | None:
    """The rank with nearly all of the blame, where nothing else says what makes it late.

    Args:
        table: Steps of the job.
        ranks: Global rank of each row.
        found: What the rules found.
        doubts: And what they did not judge: a rank that they doubt is not named here either.
    """
    total = float(table.blame.sum())
    if len(ranks) < 2 or len(table) < MIN_COMPARED or total <= 0:
        return None
    row = int(table.blame.sum(axis=1).argmax())
    rank, waits = ranks[row], table.blame[row] / (len(ranks) - 1)
    share, cost = float(table.blame[row].sum()) / total, float(waits.mean())
    step_seconds = float(table.wall.mean())
    if share < LATE_BLAME or cost < LATE_FLOOR * step_seconds:
        return None
    if any(_tells(finding, rank, cost) for finding in found):
        return None
    if any(
        item.kind is FindingKind.STRAGGLER and f"rank {rank} " in item.reason for item in doubts
    ):
        return None
    if not is_steady(waits):
        return None
    shown = ", ".join(format_seconds(quarter) for quarter in quarter_means(waits))
    return Finding(
        kind=FindingKind.STRAGGLER,
        rank=rank,
        cost_percent=cost / step_seconds * 100,
        cost_seconds=cost,
        confidence=Confidence.MEDIUM,
        summary=f"the others wait {format_seconds(cost)} a step for rank {rank} "
        f"({format_percent(share, 0)} of waits), in some steps much longer than in others",
        evidence=(f"waits by quarter of the job: {shown} a step, over {len(table):,} steps",),
        advice=f"look for what rank {rank} alone does in some steps: logging, checks, uneven "
        "samples, host reads",
    )


def _tells(finding: Finding, rank: int, cost: float) -> bool:
    """Whether a finding says why a rank is late."""
    is_large = finding.cost_seconds >= EXPLAINED_SHARE * cost
    return finding.rank == rank or (finding.rank is None and is_large)
