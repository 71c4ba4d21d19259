"""How much runs of one configuration scatter on a machine, and the thresholds that follow: a
baseline holds this where it was calibrated."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from torchscale.config.choices import Metric
from torchscale.schema.base import (
    Frozen,
    Moment,
    Name,
    NotNegative,
    Positive,
    PositiveCount,
    Share,
)
from torchscale.schema.run.metric_key import MetricKey

MOST = 0.99
"""Largest threshold: a run that scatters so much, or one A/A run that lies far from all others,
makes a gate that finds nothing, and its numbers stay finite."""


class Scatter(Frozen):
    """One figure over A/A runs.

    Attributes:
        runs: Runs that measured it.
        launches: Launches of it in each of them, the fewest.
        between: Standard deviation of the level of a run, of its logarithm.
        within: Standard deviation of a launch within its run, of its logarithm; ``None`` where runs
            have one launch each.
        threshold: A loss beyond this share is an alarm, of a run with ``launches`` launches.
    """

    runs: PositiveCount
    launches: PositiveCount
    between: NotNegative
    within: NotNegative | None = None
    threshold: Annotated[float, Field(gt=0, le=MOST, strict=True)]

    def spread(self, launches: int) -> float:
        """Standard deviation of the mean of a run with so many launches, of its logarithm."""
        if self.within is None:
            return self.between
        return math.hypot(self.between, self.within / math.sqrt(launches))

    def threshold_of(self, launches: int) -> float:
        """The threshold of a run with so many launches."""
        usual = self.spread(self.launches)
        if usual == 0:
            return self.threshold
        log = math.log1p(-self.threshold) * self.spread(launches) / usual
        return min(MOST, -math.expm1(log))

    def found_loss(self, deviations: float) -> float:
        """The loss by which a run lies so many standard deviations beyond the threshold."""
        log = math.log1p(-self.threshold) - deviations * self.spread(self.launches)
        return -math.expm1(log)


class CellScatter(Scatter):
    """A figure of a cell, by the cell's id."""

    cell: str
    figure: MetricKey


class OverallScatter(Scatter):
    """The geometric mean of a metric over the cells that were calibrated."""

    metric: Metric


class Calibration(Frozen):
    """What thresholds of a baseline rest on.

    Attributes:
        runs: A/A runs: of one configuration, on one machine, with no change between them.
        first_at, last_at: When the first and the last of them began.
        hosts: Machines that measured them.
        conditions: Flag of launches → in how many of the runs it was raised.
        false_alarms: How often a gate may fail though nothing changed, as it was asked for:
            ``1/year``, or ``1/20`` of a run in twenty.
        runs_per_day: Gates a day by which that is a chance.
        chance: Chance of any false alarm in a run.
        figures: Figures of cells, and means over cells, that are judged together by that chance.
        cells: Scatter and threshold of each figure of each cell.
        overall: Those of the mean over cells, of metrics that several cells have.
    """

    runs: PositiveCount
    first_at: Moment = ""
    last_at: Moment = ""
    hosts: tuple[Name, ...] = ()
    conditions: dict[str, PositiveCount] = Field(default_factory=dict)
    false_alarms: Name
    runs_per_day: Positive
    chance: Share
    figures: PositiveCount
    cells: tuple[CellScatter, ...]
    overall: tuple[OverallScatter, ...] = ()
