"""An everyday cause as it is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.features.watch.analysis.everyday.watched import Series, WatchedSteps
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.schema.watch.rank import ProgramLine

LineSeconds = tuple[tuple[ProgramLine, float], ...]
"""Lines of the program, each with the seconds that a step is longer there."""


@dataclass(frozen=True)
class EverydayCause:
    """A finding and the steps in which it is.

    Attributes:
        finding: What it is.
        by_column: Seconds a step that it costs at most, by column of the table.
        lines: Lines of the program at which that time goes.
    """

    finding: Finding
    by_column: Series
    lines: LineSeconds = ()


def finding_of(
    kind: FindingKind,
    watched: WatchedSteps,
    cost: float,
    *,
    rank: int | None,
    period: int | None,
    confidence: Confidence,
    summary: str,
    evidence: Sequence[str],
    advice: str,
) -> Finding:
    """A finding of this cost in seconds a step."""
    return Finding(
        kind=kind,
        rank=rank,
        cost_percent=cost / watched.step_seconds * 100,
        cost_seconds=cost,
        period_steps=period,
        confidence=confidence,
        summary=summary,
        evidence=tuple(evidence),
        advice=advice,
    )
