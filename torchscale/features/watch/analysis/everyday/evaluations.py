"""Evaluations that steps wait for."""

from __future__ import annotations

from torchscale.features.watch.analysis.everyday.cause import EverydayCause
from torchscale.features.watch.analysis.everyday.interruptions import find_interruptions
from torchscale.features.watch.analysis.everyday.lines import slow_lines
from torchscale.features.watch.analysis.everyday.watched import WatchedSteps
from torchscale.schema.profiles.finding import FindingKind
from torchscale.util.units import format_seconds


def find_evaluations(watched: WatchedSteps) -> list[EverydayCause]:
    """Evaluations, from ``model.eval()`` to ``model.train()``; on one rank the others wait."""
    found = find_interruptions(watched, watched.table.evaluating)
    if found is None:
        return []
    lines, work = slow_lines(watched, found.most, found.steps, found.each)
    evidence = [found.times]
    if work is not None:
        evidence.append(f"mostly at {work.place}")
    if found.is_apart:
        evidence.append("ranks evaluate in different steps, and all wait each time")
    advice = "evaluate less often or on fewer samples"
    if len(found.rows) < len(watched.ranks):
        advice += ", and split them over all ranks"
    cause = found.told(
        FindingKind.EVALUATIONS,
        watched,
        lines,
        summary="evaluations (model.eval() to model.train()) take "
        f"{format_seconds(found.cost)} of each step on average, "
        f"{watched.where(found.rows)}{found.again}",
        evidence=evidence,
        advice=advice,
    )
    return [cause]
