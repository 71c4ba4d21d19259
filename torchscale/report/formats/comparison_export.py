"""A comparison as JSON for other programs."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.analysis.comparison.compare import LEVEL
from torchscale.analysis.comparison.pair import (
    CellComparison,
    Change,
    EfficiencyScore,
    Outcome,
    Overall,
    Pair,
    Reason,
    Verdict,
)
from torchscale.config.choices import Metric
from torchscale.report.sections.comparison.document import ComparisonReport
from torchscale.report.sections.comparison.ranking import RankedSide
from torchscale.schema.exports.comparison import (
    ChangeExport,
    ComparedCellExport,
    ComparisonExport,
    DifferenceExport,
    DisturbanceExport,
    EfficiencyScoreExport,
    OutcomeName,
    OverallExport,
    PairExport,
    RankedSideExport,
    ReasonName,
    ScoreExport,
    SideExport,
    VerdictName,
)

_VERDICTS: dict[Verdict, VerdictName] = {
    Verdict.BETTER: "better",
    Verdict.WORSE: "worse",
    Verdict.SAME: "same",
    Verdict.UNCLEAR: "unclear",
}
_REASONS: dict[Reason, ReasonName] = {
    Reason.FEW_LAUNCHES: "launches",
    Reason.CONDITIONS: "conditions",
    Reason.NOISE: "noise",
}
_OUTCOMES: dict[Outcome, OutcomeName] = {
    Outcome.COMPARED: "compared",
    Outcome.LOST: "lost",
    Outcome.GAINED: "gained",
    Outcome.UNMEASURED: "unmeasured",
    Outcome.UNMATCHED: "unmatched",
}


def comparison_json(comparison: ComparisonReport) -> str:
    """A comparison with all its pairs, as JSON (``docs schema compare``)."""
    return comparison_export(comparison).model_dump_json(indent=1)


def comparison_export(comparison: ComparisonReport) -> ComparisonExport:
    """The whole comparison as it is published."""
    sides = (comparison.pairs[0].reference, *(pair.other for pair in comparison.pairs))
    return ComparisonExport(
        sides=tuple(
            SideExport(name=side.name, created_at=side.created_at, tool_version=side.tool_version)
            for side in sides
        ),
        threshold=comparison.threshold,
        level=LEVEL,
        prices=comparison.prices or None,
        differences=tuple(
            DifferenceExport(
                what=difference.what, values=difference.values, deciding=difference.forbids
            )
            for difference in comparison.differences
        ),
        left_out=comparison.left_out,
        ranking=tuple(map(_ranked, comparison.ranking)),
        pairs=tuple(_pair(pair, comparison.metrics) for pair in comparison.pairs),
    )


def _ranked(side: RankedSide) -> RankedSideExport:
    cost = side.cost
    return RankedSideExport(
        name=side.name,
        price=side.price,
        cells=None if cost is None else cost.cells,
        speed_ratio=None if side.speed is None else side.speed.ratio.value,
        cost_ratio=None if cost is None else cost.ratio.value,
        cost_interval=None if cost is None else cost.ratio.interval,
        verdict=None if cost is None else _VERDICTS[cost.verdict],
    )


def _pair(pair: Pair, metrics: Sequence[Metric]) -> PairExport:
    score = pair.score
    return PairExport(
        reference=pair.reference.name,
        other=pair.other.name,
        overall=tuple(map(_overall, pair.overall)),
        score=None
        if score is None
        else ScoreExport(
            value=score.value,
            ratio=score.ratio,
            measured=score.measured,
            of=score.of,
            certain=score.certain,
        ),
        efficiency_score=None if pair.efficiency is None else _efficiency(pair.efficiency),
        regressions=tuple(pair.regressions(metrics)),
        overall_regressions=tuple(pair.overall_regressions(metrics)),
        unclear=tuple(pair.unclear(metrics)),
        missing=tuple(cell.cell.cell.id for cell in pair.missing(metrics)),
        may_hide_loss=pair.may_hide_loss(metrics),
        notes=pair.notes,
        cells=tuple(map(_cell, pair.cells)),
    )


def _efficiency(score: EfficiencyScore) -> EfficiencyScoreExport:
    interval = score.ratio.interval
    ends = None if interval is None else (100 * interval[0], 100 * interval[1])
    return EfficiencyScoreExport(value=score.value, interval=ends, cells=score.cells)


def _overall(overall: Overall) -> OverallExport:
    return OverallExport(
        metric=overall.metric,
        ratio=overall.ratio.value,
        interval=overall.ratio.interval,
        cells=overall.cells,
        flagged=overall.flagged,
        withheld=overall.withheld,
        conditions=overall.conditions,
        possible=_possible(overall),
        verdict=_VERDICTS[overall.verdict],
        reason=_reason(overall),
    )


def _cell(cell: CellComparison) -> ComparedCellExport:
    before, after = cell.before, cell.after
    return ComparedCellExport(
        cell_id=cell.cell.cell.id,
        other_cell_id=None if after is None else after.cell.id,
        outcome=_OUTCOMES[cell.outcome],
        states=(None if before is None else before.state, None if after is None else after.state),
        reasons=(
            None if before is None else before.reason,
            None if after is None else after.reason,
        ),
        flags=cell.flags,
        disturbances=tuple(
            DisturbanceExport(
                condition=one.condition,
                side=one.side,
                launches=one.launches,
                of=one.of,
                other_processes=one.other_processes,
                fixed_work=one.fixed_work,
            )
            for one in cell.disturbances
        ),
        changes=tuple(map(_change, cell.changes)),
    )


def _change(change: Change) -> ChangeExport:
    return ChangeExport(
        metric=change.metric,
        detail=change.detail,
        before=change.before,
        after=change.after,
        ratio=change.ratio.value,
        interval=change.ratio.interval,
        p=change.ratio.p,
        p_corrected=change.adjusted_p,
        launches=change.launches,
        sessions=change.sessions,
        session_spread=change.session_spread,
        conditions=change.conditions,
        possible=_possible(change),
        basis=None if change.bounds is None else change.bounds.basis.value,
        verdict=_VERDICTS[change.verdict],
        reason=_reason(change),
    )


def _possible(one: Change | Overall) -> tuple[float | None, float | None] | None:
    """Outer ends of the 95 % intervals of both bounds; ``None`` under equal conditions."""
    if not one.conditions:
        return None
    low, high = (None if end is None else end.interval for end in (one.low, one.high))
    return None if low is None else low[0], None if high is None else high[1]


def _reason(one: Change | Overall) -> ReasonName | None:
    return None if one.reason is None else _REASONS[one.reason]
