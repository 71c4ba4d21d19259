"""What stops ranks now and then, and is timed by its own calls: checkpoints, evaluations, garbage
collections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchscale.analysis.diagnosis.shared import COST_FLOOR
from torchscale.analysis.exchanges.steps import Matrix
from torchscale.analysis.stats.periods import event_period
from torchscale.features.watch.analysis.everyday.cause import (
    EverydayCause,
    LineSeconds,
    finding_of,
)
from torchscale.features.watch.analysis.everyday.watched import (
    Series,
    WatchedSteps,
    large,
    rows_with,
)
from torchscale.schema.profiles.finding import Confidence, FindingKind
from torchscale.util.units import format_seconds
from torchscale.util.words import plural

_ALIKE = 0.2
"""Share of a large one from which on one is of its kind: a disk takes five times as long now and
then, and a small collection of garbage takes a hundredth of a large one."""
APART = 1.5
"""Times the most of any rank that all ranks together take, for them to be interrupted at different
times: two ranks never together are 2, always together 1."""


@dataclass(frozen=True)
class Interruptions:
    """Of one kind.

    Attributes:
        rows: Ranks with most of it.
        most: The one with most of all; ``steps`` and ``each`` are its own.
        by_column: Seconds a step that at least one rank is interrupted.
        cost: Seconds a step that the job loses.
        is_certain: Whether ``cost`` is measured, and not the most that it can be.
        steps: Numbers of the steps with the large ones; empty where they are not known one by one.
        each: Seconds of a large one; 0 where they are not known one by one.
        total: Seconds of the job in which at least one rank is interrupted.
        period: From one to the next, in steps; ``None`` where they come at no regular distance.
        is_apart: Whether ranks are interrupted in different steps.
    """

    rows: tuple[int, ...]
    most: int
    by_column: Series
    cost: float
    is_certain: bool
    steps: tuple[int, ...]
    each: float
    total: float
    period: int | None
    is_apart: bool

    @property
    def times(self) -> str:
        """``12 times, every 50 steps, 180 ms each``; the sum where they are not known one by
        one."""
        if not self.steps:
            return f"{format_seconds(self.total)} in all"
        when = "" if self.period is None else f", every {self.period} steps"
        where = " on the rank with most" if len(self.rows) > 1 else ""
        again = f"{plural(len(self.steps), 'time')}{where}{when}"
        return f"{again}, {format_seconds(self.each)} each"

    @property
    def again(self) -> str:
        """``: every 50 steps, 180 ms each``; empty where they come at no regular distance."""
        if self.period is None:
            return ""
        return f": every {self.period} steps, {format_seconds(self.each)} each"

    def told(
        self,
        kind: FindingKind,
        watched: WatchedSteps,
        lines: LineSeconds,
        *,
        summary: str,
        evidence: Sequence[str],
        advice: str,
    ) -> EverydayCause:
        """The cause, in these words; ``lines`` as in :class:`EverydayCause`."""
        finding = finding_of(
            kind,
            watched,
            self.cost,
            rank=watched.rank_of(self.rows),
            period=self.period,
            confidence=Confidence.HIGH if self.is_certain else Confidence.LOW,
            summary=summary,
            evidence=evidence,
            advice=advice,
        )
        return EverydayCause(finding, self.by_column, lines)


def find_interruptions(watched: WatchedSteps, times: Matrix) -> Interruptions | None:
    """The interruptions of a kind, where they cost the job something.

    Args:
        watched: The job.
        times: Seconds a step of each rank.
    """
    by_column = times.max(axis=0)
    cost, is_certain = watched.lost(by_column)
    if cost < COST_FLOOR * watched.step_seconds:
        return None
    rows = rows_with(times)
    most = int(times.mean(axis=1).argmax())
    high = large(times[most])
    high |= times[most] >= _ALIKE * float(np.median(times[most][high]))
    steps = watched.exact_steps(most, high)
    each = 0.0
    if steps:
        each = float(times[most][high].sum()) * watched.log.per_column / len(steps)
    together = float(by_column.mean())
    return Interruptions(
        rows=rows,
        most=most,
        by_column=by_column,
        cost=cost,
        is_certain=is_certain,
        steps=steps,
        each=each,
        total=together * watched.steps,
        period=event_period(begins(steps)),
        is_apart=len(rows) > 1 and together > APART * float(times.mean(axis=1).max()),
    )


def begins(steps: tuple[int, ...]) -> list[int]:
    """Steps of which none comes just after another one: what lasts for two steps came once."""
    numbers = np.array(steps, np.int64)
    return list(numbers[np.diff(numbers, prepend=-2) > 1].tolist())
