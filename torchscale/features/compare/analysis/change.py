"""The change of one metric between two sides, and what can be said of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torchscale.analysis.stats.ratios import LogRatio
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.bounds import Basis, Bounds
from torchscale.schema.run.metric_key import MetricKey

MIN_LAUNCHES = 3
"""Minimum number of launches on a side. With two launches the t interval of a mean has one degree
of freedom and is 12.7 standard errors wide: nearly every change would be unclear, and a lucky pair
decided."""
PossibleEnds = tuple[float | None, float | None]
"""Ends between which a ratio may lie, at 95 %; ``None`` where nothing bounds that end."""
_VAGUE = 1.5
"""Factor between the ends of a change from which its size is called unclear: slower by a tenth and
by a third are two decisions."""


def is_vague(possible: PossibleEnds | None) -> bool:
    """Whether a change of which the direction is known may have very different sizes."""
    if possible is None:
        return False
    low, high = possible
    return low is None or high is None or high > _VAGUE * low


class ChangeVerdict(str, Enum):
    """What can be said of a change; values are what files and tables show."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNCLEAR = "unclear"

    @property
    def decided(self) -> bool:
        """Whether it says something of the change."""
        return self is not ChangeVerdict.UNCLEAR

    @property
    def explanation(self) -> str:
        """The verdict as a sentence, for legends."""
        return _EXPLANATIONS[self]


DIFFERENT = (ChangeVerdict.BETTER, ChangeVerdict.WORSE)
"""Verdicts that say which side is the better one."""
_EXPLANATIONS = {
    ChangeVerdict.BETTER: "different from noise, and by more than the threshold",
    ChangeVerdict.WORSE: "different from noise, and by more than the threshold",
    ChangeVerdict.SAME: "any difference lies within the threshold",
    ChangeVerdict.UNCLEAR: "a change beyond the threshold is neither shown nor excluded: noise could "
    "hide it (more launches narrow the interval: benchmark.repeats), a side has fewer than "
    f"{MIN_LAUNCHES} launches, or other processes or low clocks could have made the change",
}


class Reason(str, Enum):
    """Why a change is unclear; values are what JSON shows."""

    FEW_LAUNCHES = "launches"
    CONDITIONS = "conditions"
    NOISE = "noise"


@dataclass(frozen=True)
class MetricChange:
    """One metric of one cell.

    Attributes:
        key: The metric, and which of several figures of it.
        before, after: Geometric means over launches, in the metric's unit.
        ratio: ``after`` ÷ ``before``.
        launches: How many on each side.
        sessions: Number of sessions in which these were measured.
        session_spread: Standard deviation of a session's level, as a share; ``None`` where it is
            not estimated.
        adjusted_p: Holm's, over the cells of this metric and their mean; ``None`` where nothing was
            tested.
        conditions: What disturbed launches or slowed a side, so that the ratio alone decides
            nothing.
        bounds: The ratios between which the change lies without that; ``None`` where nothing
            was disturbed, and where nothing bounds it.
        verdict: What can be said.
        limit: A loss beyond this share is worse, by the calibration of the reference; ``None``
            where that has none for it.
    """

    key: MetricKey
    before: float
    after: float
    ratio: LogRatio
    launches: tuple[int, int]
    sessions: tuple[int, int] = (1, 1)
    session_spread: float | None = None
    adjusted_p: float | None = None
    conditions: tuple[str, ...] = ()
    bounds: Bounds | None = None
    verdict: ChangeVerdict = ChangeVerdict.UNCLEAR
    limit: float | None = None

    @property
    def low(self) -> LogRatio | None:
        """The least that the change may be; ``None`` where nothing bounds it."""
        if not self.conditions:
            return self.ratio
        return None if self.bounds is None else self.bounds.low

    @property
    def high(self) -> LogRatio | None:
        """The most that the change may be; ``None`` where nothing bounds it."""
        if not self.conditions:
            return self.ratio
        return None if self.bounds is None else self.bounds.high

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

    @property
    def basis(self) -> Basis | None:
        """What the bounds rest on; ``None`` where there are none."""
        if self.bounds is None:
            return None
        return self.bounds.basis

    @property
    def enough_launches(self) -> bool:
        """Whether a verdict is possible: of a calibrated figure one launch shows enough."""
        return self.limit is not None or min(self.launches) >= MIN_LAUNCHES

    @property
    def reason(self) -> Reason | None:
        """Why it is unclear; ``None`` where it is not."""
        if self.verdict.decided:
            return None
        if not self.enough_launches:
            return Reason.FEW_LAUNCHES
        return Reason.CONDITIONS if self.conditions else Reason.NOISE

    @property
    def metric(self) -> Metric:
        """The metric that the key belongs to."""
        return self.key.metric

    @property
    def detail(self) -> str:
        """Which of several figures of the metric: ``all_reduce fp32``; empty where a metric has one
        figure."""
        return self.key.detail

    @property
    def covers_sessions(self) -> bool:
        """Whether the interval holds the noise between sessions: estimated, or each launch is a
        session of its own."""
        return self.session_spread is not None or self.sessions == self.launches != (1, 1)


def interval_end(ratio: LogRatio | None, place: int) -> float | None:
    """One end of an interval; ``None`` where there is none."""
    if ratio is None or ratio.interval is None:
        return None
    return ratio.interval[place]
