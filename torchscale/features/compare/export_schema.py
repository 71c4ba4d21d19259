"""The JSON of ``compare --format json``."""

from __future__ import annotations

from typing import Literal

from pydantic import AliasPath, ConfigDict, Field
from pydantic.dataclasses import dataclass

from torchscale.config.choices import Metric
from torchscale.features.compare.why_export_schema import DifferenceExport, PairWhyExport
from torchscale.schema.exports.base import (
    PUBLISHED,
    RESULTS_SCHEMA_VERSION,
    Export,
    PublishedDocument,
)
from torchscale.schema.state import State

VerdictName = Literal["better", "worse", "same", "unclear"]
ReasonName = Literal["launches", "conditions", "noise"]
OutcomeName = Literal["compared", "lost", "gained", "unmeasured", "unmatched"]


class SideExport(Export):
    """One of the compared result sets."""

    name: str
    created_at: str
    """When its measurement began: UTC, ISO 8601; empty where that is not recorded."""
    tool_version: str


class OverallExport(Export):
    """One metric over all cells that were compared: the geometric mean of their ratios."""

    metric: Metric
    ratio: float = Field(validation_alias=AliasPath("ratio", "value"))
    interval: tuple[float, float] | None = Field(validation_alias=AliasPath("ratio", "interval"))
    """95 %; null with fewer than two launches on a side."""
    cells: int
    flagged: int
    """Number of these cells that have flags."""
    withheld: int
    """Cells that do not count: with too few launches where others have enough, or one side was
    contended or throttled and nothing bounds what that did."""
    conditions: tuple[str, ...]
    """What disturbed cells that count."""
    possible: tuple[float | None, float | None] | None
    """The least and the most that ``ratio`` may be without ``conditions``, at 95 %; null where
    nothing was disturbed."""
    verdict: VerdictName
    reason: ReasonName | None
    """Why it is unclear: fewer than three launches on a side, ``conditions``, or noise."""
    limit: float | None
    """Calibrated threshold: a loss beyond this share is worse, within it ``same``; null where
    ``threshold`` decides."""


class ScoreExport(Export):
    """100 × ``ratio`` × ``measured`` ÷ ``of``."""

    value: float
    ratio: float
    """Geometric mean of the speed ratios."""
    measured: int
    """Cells measured on both sides."""
    of: int
    """Cells that the reference measured."""
    certain: bool
    """Whether the overall change of speed has a verdict."""


class EfficiencyScoreExport(Export):
    """100 × the geometric mean over cells of their scaling efficiency against the reference's."""

    value: float
    interval: tuple[float, float] | None
    """95 % of ``value``; null with fewer than two launches on a side."""
    cells: int
    """Cells with more devices than the smallest of their series that both sides measured."""


class ChangeExport(Export):
    """One metric of one cell."""

    metric: Metric
    detail: str
    """Which of several figures of the metric: ``all_reduce fp32``; empty where there is one."""
    before: float
    """Geometric mean over launches."""
    after: float
    ratio: float = Field(validation_alias=AliasPath("ratio", "value"))
    """``after`` ÷ ``before``."""
    interval: tuple[float, float] | None = Field(validation_alias=AliasPath("ratio", "interval"))
    p: float | None = Field(validation_alias=AliasPath("ratio", "p"))
    p_corrected: float | None = Field(validation_alias="adjusted_p")
    """p-value after Holm's correction."""
    launches: tuple[int, int]
    """Number of launches on each side."""
    sessions: tuple[int, int]
    """Number of sessions in which these were measured."""
    session_spread: float | None
    """Standard deviation of a session's level, as a share; null where it is not estimated."""
    conditions: tuple[str, ...]
    """What disturbed launches or slowed a side, so that ``ratio`` alone decides nothing:
    ``contended``, ``throttled``, ``slowed``."""
    possible: tuple[float | None, float | None] | None
    """The least and the most that ``ratio`` may be without them, at 95 %; null where nothing was
    disturbed."""
    basis: str | None
    """What that rests on: ``quiet launches``, ``delay`` (time that ranks waited for a core),
    ``direction``."""
    verdict: VerdictName
    reason: ReasonName | None
    """Why it is unclear: fewer than three launches on a side, ``conditions``, or noise."""
    limit: float | None
    """Calibrated threshold: a loss beyond this share is worse, within it ``same``; null where
    ``threshold`` and ``p_corrected`` decide."""


@dataclass(frozen=True, config=PUBLISHED)
class Disturbance:
    """What the machine did to some launches of a side."""

    condition: str
    """``contended``, ``throttled`` or ``slowed``."""
    side: int
    """0 for the reference, 1 for the other side."""
    launches: tuple[int, ...]
    """Their numbers, from 1."""
    of: int
    """Launches of the side."""
    other_processes: float | None = None
    """Largest share of the cores' time that went to other processes; null where it was not read."""
    fixed_work: float | None = None
    """Share by which the fixed work between batches took longer than on the other side, where the
    condition is ``slowed``; else null."""


class ComparedCellExport(Export):
    """A cell of either side; lists of two hold the reference first, null where that side lacks the
    cell."""

    cell_id: str = Field(validation_alias=AliasPath("cell", "cell", "id"))
    other_cell_id: str | None = Field(validation_alias="other_id")
    outcome: OutcomeName
    states: tuple[State | None, State | None]
    reasons: tuple[str | None, str | None]
    flags: tuple[str, ...]
    """Flags of both sides."""
    disturbances: tuple[Disturbance, ...]
    """Launches that were contended or throttled, and a side whose machine itself was slower."""
    changes: tuple[ChangeExport, ...]


class PairExport(Export):
    """One side against the reference."""

    reference: str = Field(validation_alias=AliasPath("reference", "name"))
    other: str = Field(validation_alias=AliasPath("other", "name"))
    overall: tuple[OverallExport, ...]
    score: ScoreExport | None
    """Null where no cell was compared by its speed."""
    efficiency_score: EfficiencyScoreExport | None = Field(validation_alias="efficiency")
    """Null where no series has two counts on both sides."""
    regressions: tuple[str, ...]
    """Ids of cells that are worse, or failed on this side alone."""
    overall_regressions: tuple[Metric, ...]
    unclear: tuple[str, ...]
    """Ids of cells without a verdict."""
    missing: tuple[str, ...]
    """Ids of cells of which this side measured less than the reference."""
    may_hide_loss: bool
    """Whether all that decides is unclear, and it may be a quarter slower or more: exit code 1."""
    notes: tuple[str, ...]
    cells: tuple[ComparedCellExport, ...]
    why: PairWhyExport | None
    """Null without ``--why``."""


class RankedSideExport(Export):
    """A side with its price, against the reference over the cells that both measured; null for the
    reference itself."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    name: str
    price: float
    """Price of a device and hour."""
    cells: int | None = Field(default=None, validation_alias=AliasPath("cost", "cells"))
    speed_ratio: float | None = Field(
        default=None, validation_alias=AliasPath("speed", "ratio", "value")
    )
    """Samples per second."""
    cost_ratio: float | None = Field(
        default=None, validation_alias=AliasPath("cost", "ratio", "value")
    )
    """Samples per dollar."""
    cost_interval: tuple[float, float] | None = Field(
        default=None, validation_alias=AliasPath("cost", "ratio", "interval")
    )
    """95 %; null with fewer than two launches on a side."""
    verdict: VerdictName | None = Field(default=None, validation_alias=AliasPath("cost", "verdict"))


class CalibrationExport(Export):
    """What the calibrated thresholds of the reference rest on."""

    used: bool
    """Whether they decide; false with ``--threshold``."""
    runs: int
    """A/A runs."""
    false_alarms: str
    """How often a comparison may fail though nothing changed: ``1/year``, ``1/20`` of twenty."""
    runs_per_day: float
    chance: float
    """Chance of a false alarm in a comparison."""
    figures: int
    """Figures of cells and means over cells that are judged together by that chance."""
    first_at: str
    """When the first A/A run began: UTC, ISO 8601."""
    last_at: str
    hosts: tuple[str, ...]
    conditions: dict[str, int]
    """Flag of launches → in how many A/A runs it was raised."""


class ComparisonExport(Export):
    """A comparison of two or more result sets."""

    schema_version: Literal[1] = RESULTS_SCHEMA_VERSION
    sides: tuple[SideExport, ...]
    """The reference first."""
    threshold: float
    """A change up to this share counts as none."""
    level: float
    """Level of significance."""
    calibration: CalibrationExport | None
    """Null where the reference is not calibrated."""
    prices: tuple[float, ...] | None
    """Prices of a device and hour on each side."""
    differences: tuple[DifferenceExport, ...]
    left_out: tuple[str, ...]
    """Sentences on sources that are not compared."""
    ranking: tuple[RankedSideExport, ...]
    """Sides by samples per dollar, the best first; empty without prices."""
    pairs: tuple[PairExport, ...]


DOCUMENT = PublishedDocument(
    ComparisonExport,
    RESULTS_SCHEMA_VERSION,
    "torchscale comparison",
    "Result sets against a reference: `torchscale compare --format json`.",
)
