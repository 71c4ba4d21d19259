"""Garbage collections that steps wait for."""

from __future__ import annotations

from torchscale.features.watch.analysis.everyday.cause import EverydayCause
from torchscale.features.watch.analysis.everyday.interruptions import (
    Interruptions,
    find_interruptions,
)
from torchscale.features.watch.analysis.everyday.lines import SlowWork, slow_lines
from torchscale.features.watch.analysis.everyday.watched import WatchedSteps
from torchscale.schema.profiles.finding import FindingKind
from torchscale.util.units import format_seconds


def find_collections(watched: WatchedSteps) -> list[EverydayCause]:
    """Python's garbage collector, which stops a rank, and with it all that wait for the rank."""
    found = find_interruptions(watched, watched.table.collection)
    if found is None:
        return []
    lines, work = slow_lines(watched, found.most, found.steps, found.each)
    cause = found.told(
        FindingKind.GARBAGE_COLLECTION,
        watched,
        lines,
        summary=f"Python's garbage collector takes {format_seconds(found.cost)} of each step on "
        f"average, {watched.where(found.rows)}",
        evidence=_evidence(watched, found, work),
        advice=_advice(found),
    )
    return [cause]


def _evidence(watched: WatchedSteps, found: Interruptions, work: SlowWork | None) -> list[str]:
    evidence = [found.times]
    if work is not None:
        evidence.append(f"mostly at {work.place}")
    if found.is_apart:
        mine = [float(watched.table.collection[row].mean()) for row in found.rows]
        most = format_seconds(max(mine))
        evidence.append(
            f"ranks collect in different steps: at most {most} a step each, and all wait for each"
        )
    return evidence


def _advice(found: Interruptions) -> str:
    together = "at a fixed interval"
    if len(found.rows) > 1:
        together = "on all ranks in the same steps"
    return (
        "call gc.freeze() after set-up; switch the automatic collection off (gc.disable()) and "
        f"collect {together}; look for what makes many objects in a step"
    )
