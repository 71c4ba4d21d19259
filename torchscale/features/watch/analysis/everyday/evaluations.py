"""Evaluations that steps wait for."""

from __future__ import annotations

from torchscale.features.watch.analysis.everyday.cause import EverydayCause, finding_of
from torchscale.features.watch.analysis.everyday.interruptions import find_interruptions
from torchscale.features.watch.analysis.everyday.lines import slow_lines
from torchscale.features.watch.analysis.everyday.watched import WatchedSteps
from torchscale.schema.profiles.finding import Confidence, FindingKind
from torchscale.util.units import format_seconds


def find_evaluations(watched: WatchedSteps) -> list[EverydayCause]:
    """Evaluations, from ``model.eval()`` to ``model.train()``; on one rank the others wait."""
    found = find_interruptions(watched, watched.table.evaluating)
    if found is None:
        return []
    rank = watched.rank_of(found.rows)
    lines, work = slow_lines(watched, found.rows[0], found.steps, found.each)
    evidence = [found.times]
    if work is not None:
        evidence.append(f"mostly at {work.place}")
    if found.is_apart:
        evidence.append("ranks evaluate in different steps, and all wait each time")
    when = ""
    if found.period is not None:
        when = f": every {found.period} steps, {format_seconds(found.each)} each"
    advice = "evaluate less often or on fewer samples"
    if len(found.rows) < len(watched.ranks):
        advice += ", and split them over all ranks"
    finding = finding_of(
        FindingKind.EVALUATIONS,
        watched,
        found.cost,
        rank=rank,
        period=found.period,
        confidence=Confidence.HIGH if found.is_certain else Confidence.LOW,
        summary="evaluations (model.eval() to model.train()) take "
        f"{format_seconds(found.cost)} of each step on average, {watched.where(found.rows)}{when}",
        evidence=evidence,
        advice=advice,
    )
    return [EverydayCause(finding, found.by_column, lines)]
