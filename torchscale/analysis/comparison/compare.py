"""Two result sets against each other: which cells match, what changed, and whether that is beyond noise.

Pure; definitions in ``docs/method.md``. The unit is the launch: steps of one launch are not independent, and pooled
they call most equal pairs different.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from torchscale.analysis.comparison.matching import Match, match_cells
from torchscale.analysis.stats.ratios import LogRatio, holm, log_ratio, mean_ratio
from torchscale.config.choices import Metric
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import ResultCell, ResultSet
from torchscale.schema.state import State

MIN_LAUNCHES = 3
"""On a side. With two launches the t interval of a mean has one degree of freedom and is 12.7 standard errors wide:
nearly every change would be undecided, and a lucky pair decided."""
LEVEL = 0.05
"""Of significance, after Holm's correction (docs/method.md). Measured false alarms: docs/tested-on.md."""
THRESHOLD = 0.02
"""A change up to this share counts as none: launches of one configuration differ by 2 to 3 % on a shared machine, and
smaller changes rarely matter (docs/method.md; ``--threshold`` sets it)."""
_FAILED = (State.OOM, State.TIMEOUT, State.CRASHED, State.KILLED, State.INVALID)
HEADLINES = (Metric.THROUGHPUT, Metric.BUSBW, Metric.COMPUTE, Metric.COPY)
"""What decides unless something else is asked for; of a cell that measures memory alone, that."""


class Verdict(str, Enum):
    """What can be said of a change; values are what files and tables show."""

    BETTER = "better"
    WORSE = "worse"
    SAME = "same"
    UNCLEAR = "unclear"
    NOT_DECIDABLE = "not decidable"

    @property
    def explanation(self) -> str:
        """The verdict as a sentence, for legends."""
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    Verdict.BETTER: "different from launch-to-launch noise and by more than the threshold",
    Verdict.WORSE: "different from launch-to-launch noise and by more than the threshold",
    Verdict.SAME: "any difference lies within the threshold",
    Verdict.UNCLEAR: "no difference shown, but the interval reaches beyond the threshold: one could hide in the noise; "
    "more launches (benchmark.repeats) narrow it",
    Verdict.NOT_DECIDABLE: f"fewer than {MIN_LAUNCHES} launches on a side, so nothing is known of the noise",
}


class Outcome(str, Enum):
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
class Change:
    """One metric of one cell.

    Attributes:
        key: The metric, and which of several figures of it.
        before, after: Geometric means over launches, in the metric's unit.
        ratio: ``after`` ÷ ``before``.
        launches: How many on each side.
        adjusted_p: Holm's, over the cells of this metric and their mean; ``None`` where it is not decidable.
        verdict: What can be said.
    """

    key: MetricKey
    before: float
    after: float
    ratio: LogRatio
    launches: tuple[int, int]
    adjusted_p: float | None = None
    verdict: Verdict = Verdict.NOT_DECIDABLE

    @property
    def metric(self) -> Metric:
        """The metric that the key belongs to."""
        return self.key.metric

    @property
    def detail(self) -> str:
        """Which of several figures of the metric: ``all_reduce fp32``; empty where a metric has one figure."""
        return self.key.detail


@dataclass(frozen=True)
class CellComparison:
    """A cell of either side; ``before`` and ``after`` are ``None`` where that side lacks it."""

    before: ResultCell | None
    after: ResultCell | None
    outcome: Outcome
    changes: tuple[Change, ...] = ()

    @property
    def cell(self) -> ResultCell:
        """Of whichever side has it."""
        side = self.before or self.after
        assert side is not None  # noqa: S101 - one side has it; this tells the type checker
        return side

    @property
    def flags(self) -> tuple[str, ...]:
        """Cautions of both sides."""
        both = {flag for one in (self.before, self.after) if one is not None for flag in one.flags}
        return tuple(sorted(both))


@dataclass(frozen=True)
class Overall:
    """One metric over all cells that were compared: the geometric mean of their ratios, each cell counting once."""

    metric: Metric
    ratio: LogRatio
    cells: int
    flagged: int
    verdict: Verdict


@dataclass(frozen=True)
class Score:
    """``value`` = 100 × ``ratio`` × ``measured`` ÷ ``of``: speed against the reference over the cells that both
    measured, times the share of the reference's measured cells that were measured here too."""

    ratio: float
    measured: int
    of: int

    @property
    def value(self) -> float:
        """The composite: 100 is the reference."""
        return 100 * self.ratio * self.measured / self.of


@dataclass(frozen=True)
class Pair:
    """One result set against the reference. ``score`` is ``None`` where no cell was compared by its speed."""

    reference: ResultSet
    other: ResultSet
    cells: tuple[CellComparison, ...]
    overall: tuple[Overall, ...]
    score: Score | None
    notes: tuple[str, ...] = ()

    def decided_by(self, metrics: Sequence[Metric]) -> list[tuple[CellComparison, Change]]:
        """Changes that decide: of ``metrics``, or without any of the headline of each cell."""
        return [(cell, change) for cell in self.cells for change in cell.changes if _decides(cell, change, metrics)]

    def regressions(self, metrics: Sequence[Metric]) -> list[str]:
        """Cells that were lost, or are worse by what decides."""
        lost = [cell.cell.cell.id for cell in self.cells if cell.outcome is Outcome.LOST]
        worse = [cell.cell.cell.id for cell, change in self.decided_by(metrics) if change.verdict is Verdict.WORSE]
        return [*lost, *dict.fromkeys(worse)]

    def overall_regressions(self, metrics: Sequence[Metric]) -> list[Metric]:
        """What decides and is worse over all cells together: it may be so where no cell shows it alone."""
        return [
            one.metric for one in self.overall if one.verdict is Verdict.WORSE and one.metric in (metrics or HEADLINES)
        ]

    def undecided(self, metrics: Sequence[Metric]) -> list[str]:
        """Cells of which nothing can be said: too few launches, too much noise, not measured on a side."""
        open_ends = (Outcome.UNMEASURED, Outcome.UNMATCHED)
        missing = [
            one.cell.cell.id
            for one in self.cells
            if one.outcome in open_ends
            and any(side is not None and side.state is State.OK for side in (one.before, one.after))
        ]
        unclear = [
            cell.cell.cell.id
            for cell, change in self.decided_by(metrics)
            if change.verdict in (Verdict.UNCLEAR, Verdict.NOT_DECIDABLE)
        ]
        return [*missing, *dict.fromkeys(unclear)]


def _decides(cell: CellComparison, change: Change, metrics: Sequence[Metric]) -> bool:
    if metrics:
        return change.metric in metrics
    return change.metric in HEADLINES or (cell.cell.cell.kind == "memory" and change.metric is Metric.MEMORY)


def compare(
    reference: ResultSet,
    other: ResultSet,
    *,
    threshold: float = THRESHOLD,
    prices: tuple[float | None, float | None] = (None, None),
    ignore_precision: bool = False,
) -> Pair:
    """``other`` against ``reference``.

    Args:
        reference, other: The sides.
        threshold: A change up to this share is none.
        prices: Of a device and hour on each side; without both there is no cost.
        ignore_precision: Match cells that differ in precision alone.
    """
    matches, notes = match_cells(reference, other, ignore_precision=ignore_precision)
    cells = [_compare_cells(match, prices) for match in matches]
    judged = {metric: _judged(metric, changes, threshold) for metric, changes in _by_metric(cells).items()}
    verdicts = {id(change): new for changes, _ in judged.values() for change, new in changes}
    cells = [replace(cell, changes=tuple(verdicts[id(change)] for change in cell.changes)) for cell in cells]
    overall = tuple(of_metric for _, of_metric in judged.values())
    return Pair(reference, other, tuple(cells), overall, _score(cells), notes)


def _compare_cells(match: Match, prices: tuple[float | None, float | None]) -> CellComparison:
    before, after = match
    outcome = _outcome(before, after)
    if before is None or after is None or outcome is not Outcome.COMPARED:
        return CellComparison(before, after, outcome)
    sides = [_series(side, price) for side, price in zip((before, after), prices, strict=True)]
    changes = []
    for key in sides[0]:
        old, new = sides[0][key], sides[1].get(key)
        if new is None:
            continue
        changes.append(Change(key, _level(old), _level(new), log_ratio(new, old), (len(old), len(new))))
    return CellComparison(before, after, outcome, tuple(changes))


def _outcome(before: ResultCell | None, after: ResultCell | None) -> Outcome:
    if before is None or after is None:
        return Outcome.UNMATCHED
    if before.state is State.OK and after.state is State.OK:
        return Outcome.COMPARED
    if before.state is State.OK and after.state in _FAILED:
        return Outcome.LOST
    if before.state in _FAILED and after.state is State.OK:
        return Outcome.GAINED
    return Outcome.UNMEASURED


def _series(cell: ResultCell, price: float | None) -> dict[MetricKey, list[float]]:
    """Each metric's value of every launch; a metric that some launch lacks is left out."""
    keys = list(cell.launches[0].values) if cell.launches else []
    series = {
        key: [launch.values[key] for launch in cell.launches]
        for key in keys
        if all(key in launch.values for launch in cell.launches)
    }
    rates = series.get(MetricKey(metric=Metric.THROUGHPUT))
    if price is not None and price > 0 and rates is not None:
        series[MetricKey(metric=Metric.COST)] = [rate * 3600 / (price * cell.cell.world_size) for rate in rates]
    return series


def _level(values: Sequence[float]) -> float:
    return log_ratio(values, [1.0]).value


_Changes = list[tuple[CellComparison, Change]]


def _by_metric(cells: Sequence[CellComparison]) -> dict[Metric, _Changes]:
    by_metric: dict[Metric, _Changes] = {}
    for cell in cells:
        for change in cell.changes:
            by_metric.setdefault(change.metric, []).append((cell, change))
    return by_metric


def _judged(metric: Metric, changes: _Changes, threshold: float) -> tuple[list[tuple[Change, Change]], Overall]:
    """Each change without and with its verdict, and all of them together.

    Holm's correction covers every test of the metric: its cells and, where there are several, their mean.
    """
    ratio = mean_ratio([change.ratio for _, change in changes])
    decidable = {id(change): change.ratio.p for _, change in changes if min(change.launches) >= MIN_LAUNCHES}
    tested = {key: p for key, p in decidable.items() if p is not None}
    if ratio.p is not None and len(tested) == len(changes) > 1:
        tested[id(ratio)] = ratio.p
    adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
    with_verdicts = [(change, _with_verdict(change, adjusted.get(id(change)), threshold)) for _, change in changes]
    overall_p = adjusted.get(id(ratio) if len(changes) > 1 else id(changes[0][1]))
    cells = {id(cell): cell for cell, _ in changes}.values()
    flagged = sum(bool(cell.flags) for cell in cells)
    verdict = _verdict(metric, ratio, overall_p, threshold)
    return with_verdicts, Overall(metric, ratio, len(cells), flagged, verdict)


def _with_verdict(change: Change, adjusted_p: float | None, threshold: float) -> Change:
    verdict = _verdict(change.metric, change.ratio, adjusted_p, threshold)
    return replace(change, adjusted_p=adjusted_p, verdict=verdict)


def _verdict(metric: Metric, ratio: LogRatio, p: float | None, threshold: float) -> Verdict:
    interval = ratio.interval
    if p is None or interval is None:
        return Verdict.NOT_DECIDABLE
    if p < LEVEL and abs(ratio.value - 1) > threshold:
        return Verdict.BETTER if (ratio.value > 1) == metric.higher_is_better else Verdict.WORSE
    within = 1 - threshold <= interval[0] and interval[1] <= 1 + threshold
    return Verdict.SAME if within else Verdict.UNCLEAR


def _score(cells: Sequence[CellComparison]) -> Score | None:
    wanted = [cell for cell in cells if cell.before is not None and cell.before.state is State.OK]
    ratios = [
        mean_ratio([change.ratio for change in cell.changes if change.metric in HEADLINES])
        for cell in wanted
        if any(change.metric in HEADLINES for change in cell.changes)
    ]
    if not ratios:
        return None
    speeds = [cell for cell in wanted if cell.cell.cell.kind != "memory"]
    return Score(mean_ratio(ratios).value, len(ratios), len(speeds))
