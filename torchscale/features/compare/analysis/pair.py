"""What came of comparing one result set with another: verdicts, and what a gate may not
overlook."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from torchscale.analysis.stats.ratios import LogRatio
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.change import (
    DIFFERENT,
    MIN_LAUNCHES,
    ChangeVerdict,
    MetricChange,
    PossibleEnds,
    Reason,
    interval_end,
    is_vague,
)
from torchscale.features.compare.analysis.headlines import BLIND, decides
from torchscale.features.compare.export_schema import Disturbance
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.schema.state import State


class CellOutcome(str, Enum):
    """Whether a cell could be compared."""

    COMPARED = "compared"
    LOST = "lost"
    """Measured in the reference, and failed here."""
    GAINED = "gained"
    """Failed in the reference, and measured here."""
    UNMEASURED = "unmeasured"
    """Measured on one side, not run or skipped on the other, or on neither."""
    UNMATCHED = "unmatched"
    """Only one side has it."""


@dataclass(frozen=True)
class CellComparison:
    """A cell of either side; ``before`` and ``after`` are ``None`` where that side lacks it.
    ``absent`` are figures that the reference has and the other side lacks; ``disturbances`` say
    which launches were contended or throttled."""

    before: ResultCell | None
    after: ResultCell | None
    outcome: CellOutcome
    changes: tuple[MetricChange, ...] = ()
    absent: tuple[MetricKey, ...] = ()
    disturbances: tuple[Disturbance, ...] = ()

    @property
    def cell(self) -> ResultCell:
        """The result cell of ``before``, or of ``after`` where only that side has it."""
        side = self.before or self.after
        assert side is not None  # noqa: S101 - one side has it; this tells the type checker
        return side

    @property
    def other_id(self) -> str | None:
        """Id of the cell on the other side; ``None`` where it lacks the cell."""
        if self.after is None:
            return None
        return self.after.cell.id

    @property
    def states(self) -> tuple[State | None, ...]:
        """States of the cell on both sides; ``None`` for a side that lacks it."""
        return tuple(None if side is None else side.state for side in (self.before, self.after))

    @property
    def reasons(self) -> tuple[str | None, ...]:
        """Reasons of the cell's state on both sides; ``None`` where there is none."""
        return tuple(None if side is None else side.reason for side in (self.before, self.after))

    @property
    def flags(self) -> tuple[str, ...]:
        """Cautions of both sides."""
        both = {flag for one in (self.before, self.after) if one is not None for flag in one.flags}
        return tuple(sorted(both))

    @property
    def measured_less(self) -> bool:
        """Whether the other side did not fail and yet has fewer launches than the reference: none,
        a part of them, or too few for a verdict that the reference allows. Of calibrated figures
        one launch is enough."""
        if self.outcome is CellOutcome.LOST or self.before is None or not self.before.launches:
            return False
        before, after = (
            len(self.before.launches),
            0 if self.after is None else len(self.after.launches),
        )
        partial = self.after is not None and self.after.state is State.PARTIAL and after < before
        too_few = after < MIN_LAUNCHES <= before and not any(
            change.limit is not None for change in self.changes
        )
        return after == 0 or partial or too_few


@dataclass(frozen=True)
class Overall:
    """One metric over all cells that were compared: the geometric mean of their ratios, each cell
    counting once.

    Attributes:
        metric: The metric.
        ratio: Ratio of the cells that count.
        cells, flagged: How many count, and how many of these carry warnings.
        verdict: What can be said.
        low, high: The least and the most that the change may be, which is ``ratio`` unless cells
            were disturbed; ``None`` where nothing bounds it.
        reason: Why it is unclear; ``None`` where it is not.
        withheld: Cells that do not count: with too few launches where others have enough, and where
            nothing bounds what unequal conditions did.
        conditions: What disturbed cells that count.
        limit: A loss beyond this share is worse, by the calibration of the reference; ``None``
            where that has none.
    """

    metric: Metric
    ratio: LogRatio
    cells: int
    flagged: int
    verdict: ChangeVerdict
    low: LogRatio | None
    high: LogRatio | None
    reason: Reason | None
    withheld: int
    conditions: tuple[str, ...]
    limit: float | None = None

    @property
    def possible(self) -> PossibleEnds | None:
        """Outer ends of the intervals of both bounds; ``None`` where nothing was disturbed."""
        if not self.conditions:
            return None
        return interval_end(self.low, 0), interval_end(self.high, 1)

    @property
    def size_is_unclear(self) -> bool:
        """Whether it is better or worse, and how much is not known."""
        return self.verdict in DIFFERENT and is_vague(self.possible)

    def may_hide_loss(self, threshold: float) -> bool:
        """Whether it is unclear and a loss of a quarter (``BLIND``), or of the threshold if that is
        larger, is possible. By a calibration no interval decides, and one launch has none."""
        if self.verdict.decided:
            return False
        end = self.low if self.metric.higher_is_better else self.high
        if self.reason is Reason.FEW_LAUNCHES or end is None:
            return True
        interval = end.interval if self.limit is None else (end.value, end.value)
        if interval is None:
            return True
        worst = interval[0] if self.metric.higher_is_better else 1 / interval[1]
        return worst < 1 - max(BLIND, threshold)


@dataclass(frozen=True)
class Score:
    """``value`` = 100 × ``ratio`` × ``measured`` ÷ ``of``: speed against the reference over the
    cells that both measured, times the share of the reference's measured cells that were measured
    here too. ``certain`` is set where the overall change of speed has a verdict."""

    ratio: float
    measured: int
    of: int
    certain: bool

    @property
    def value(self) -> float:
        """The composite: 100 is the reference."""
        return 100 * self.ratio * self.measured / self.of


@dataclass(frozen=True)
class EfficiencyScore:
    """``value`` = 100 × ``ratio``, the geometric mean over ``cells`` of their scaling efficiency
    against the reference's. Efficiency is against the smallest count of a series that both sides
    measured."""

    ratio: LogRatio
    cells: int

    @property
    def value(self) -> float:
        """100 is the reference."""
        return 100 * self.ratio.value

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 % of ``value``; ``None`` where nothing is known of the spread."""
        interval = self.ratio.interval
        if interval is None:
            return None
        return 100 * interval[0], 100 * interval[1]


@dataclass(frozen=True)
class Pair:
    """One result set against the reference. ``score`` is ``None`` where no cell was compared by its
    speed, ``efficiency`` where no series has two counts on both sides."""

    reference: ResultSet
    other: ResultSet
    cells: tuple[CellComparison, ...]
    overall: tuple[Overall, ...]
    score: Score | None
    notes: tuple[str, ...]
    threshold: float
    efficiency: EfficiencyScore | None

    @property
    def is_same_run(self) -> bool:
        """Whether both sides are the same launches."""
        sides = (self.reference, self.other)
        ours, theirs = ([cell.launches for cell in side.cells] for side in sides)
        return ours == theirs and any(launch.started_at for cell in ours for launch in cell)

    def decided_by(self, metrics: Sequence[Metric]) -> list[tuple[CellComparison, MetricChange]]:
        """Changes that decide: of ``metrics``, or without any of the headline of each cell."""
        return [
            (cell, change)
            for cell in self.cells
            for change in cell.changes
            if decides(cell.cell, change.metric, metrics)
        ]

    def regressions(self, metrics: Sequence[Metric]) -> list[str]:
        """Cells that were lost, or are worse by what decides."""
        lost = [cell.cell.cell.id for cell in self.cells if cell.outcome is CellOutcome.LOST]
        worse = [
            cell.cell.cell.id
            for cell, change in self.decided_by(metrics)
            if change.verdict is ChangeVerdict.WORSE
        ]
        return [*lost, *dict.fromkeys(worse)]

    def overall_regressions(self, metrics: Sequence[Metric]) -> list[Metric]:
        """What decides and is worse over all cells together: it may be so where no cell shows it
        alone."""
        return [
            one.metric for one in self.overall_by(metrics) if one.verdict is ChangeVerdict.WORSE
        ]

    def overall_by(self, metrics: Sequence[Metric]) -> list[Overall]:
        """Overall changes of the metrics that decide."""
        decisive = {change.metric for _, change in self.decided_by(metrics)}
        return [one for one in self.overall if one.metric in decisive]

    def missing(self, metrics: Sequence[Metric]) -> list[CellComparison]:
        """Cells of which this side measured less than the reference, or not what decides."""
        return [
            cell
            for cell in self.cells
            if cell.measured_less
            or any(decides(cell.cell, key.metric, metrics) for key in cell.absent)
        ]

    def may_hide_loss(self, metrics: Sequence[Metric]) -> bool:
        """Whether all that decides is unclear over all cells, and a large loss is possible."""
        overall = self.overall_by(metrics)
        return bool(overall) and all(one.may_hide_loss(self.threshold) for one in overall)

    def unclear(self, metrics: Sequence[Metric]) -> list[str]:
        """Cells of which nothing can be said: too few launches, too much noise, not measured on a
        side."""
        open_ends = (CellOutcome.UNMEASURED, CellOutcome.UNMATCHED)
        missing = [
            one.cell.cell.id
            for one in self.cells
            if one.outcome in open_ends
            and any(side is not None and side.launches for side in (one.before, one.after))
        ]
        unclear = [
            cell.cell.cell.id
            for cell, change in self.decided_by(metrics)
            if not change.verdict.decided
        ]
        return [*missing, *dict.fromkeys(unclear)]
