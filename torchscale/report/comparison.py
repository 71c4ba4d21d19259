"""A comparison as a document: what changed, by how much, how sure, and in what else the sides differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from torchscale.analysis.comparison import LEVEL, MIN_LAUNCHES, CellComparison, Change, Outcome, Pair, Verdict
from torchscale.analysis.matching import Difference
from torchscale.analysis.welch import LogRatio
from torchscale.report.comparison_words import (
    METRIC_WORDS,
    change_words,
    interval_words,
    level_words,
    measured_days,
    metric_words,
    outcome_words,
    pair_verdict,
    result_words,
    score_words,
)
from torchscale.report.document import (
    DASH,
    Block,
    Bullets,
    Chart,
    ChartGrid,
    Column,
    Document,
    KeyFigure,
    Paragraph,
    Section,
    Series,
    Table,
    Tone,
    Value,
    optional_value,
    shortened,
)
from torchscale.report.selection import spread_out
from torchscale.report.words import chart_name, plural
from torchscale.schema.results import Metric
from torchscale.units import format_change, format_percent

_MAX_POINTS = 60
_MAX_TICKS = 10
_VAGUE = 4.0
"""An interval whose ends are this many times apart would squeeze all others."""
_TONES = {Verdict.BETTER: Tone.GOOD, Verdict.WORSE: Tone.BAD, Verdict.SAME: Tone.PLAIN}


@dataclass(frozen=True)
class Comparison:
    """Everything that a comparison shows.

    Attributes:
        pairs: Each other side against the reference.
        differences: Of machines, software and settings, over all sides.
        names: Of the sides, the reference first.
        metrics: What decides; empty for the headline of each cell.
        threshold: A change up to this share is none.
        prices: Of a device and hour on each side; empty where none was given.
    """

    pairs: tuple[Pair, ...]
    differences: tuple[Difference, ...]
    names: tuple[str, ...]
    metrics: tuple[Metric, ...] = ()
    threshold: float = 0.02
    prices: tuple[float, ...] = field(default=())


def comparison_document(comparison: Comparison) -> Document:
    """For people."""
    return Document(
        title=f"Comparison: {' and '.join(shortened(name) for name in comparison.names[1:])} against "
        f"{shortened(comparison.names[0])}",
        subtitle=_subtitle(comparison),
        verdict=tuple(" ".join(pair_verdict(pair, comparison.metrics)) for pair in comparison.pairs),
        key_figures=_key_figures(comparison),
        sections=comparison_sections(comparison),
    )


def comparison_sections(comparison: Comparison) -> tuple[Section, ...]:
    """The parts of such a document."""
    sections = (
        _overall_section(comparison),
        _cells_section(comparison),
        _differences_section(comparison),
        _method_section(comparison),
    )
    return tuple(section for section in sections if section.blocks)


def comparison_json(comparison: Comparison) -> str:
    """For programs."""
    content = {
        "sides": [
            {"name": side.name, "created_at": side.created_at, "tool_version": side.tool_version}
            for side in (comparison.pairs[0].reference, *(pair.other for pair in comparison.pairs))
        ],
        "threshold": comparison.threshold,
        "level": LEVEL,
        "prices": list(comparison.prices) or None,
        "differences": [
            {"what": one.what, "values": list(one.values), "deciding": one.forbids} for one in comparison.differences
        ],
        "pairs": [_pair_json(pair, comparison.metrics) for pair in comparison.pairs],
    }
    return json.dumps(content, indent=1, ensure_ascii=False)


def _subtitle(comparison: Comparison) -> str:
    return " · ".join(
        shortened(f"{side.name}: measured {measured_days(side) or 'at an unknown time'}")
        for side in (comparison.pairs[0].reference, *(pair.other for pair in comparison.pairs))
    )


def _key_figures(comparison: Comparison) -> tuple[KeyFigure, ...]:
    figures = []
    for pair in comparison.pairs:
        name = shortened(pair.other.name)
        speed = next((one for one in pair.overall if one.metric is Metric.THROUGHPUT), None)
        if speed is not None:
            note = f"{interval_words(speed.ratio)} over {plural(speed.cells, 'cell')}: {speed.verdict.value}"
            figures.append(KeyFigure(f"throughput, {name}", change_words(speed.ratio), note))
        decided = pair.decided_by(comparison.metrics)
        counts = [(verdict, sum(change.verdict is verdict for _, change in decided)) for verdict in Verdict]
        told = ", ".join(f"{count} {verdict.value}" for verdict, count in counts if count)
        lost = sum(cell.outcome is Outcome.LOST for cell in pair.cells)
        value = plural(len(pair.regressions(comparison.metrics)), "cell")
        figures.append(
            KeyFigure(f"worse or lost, {name}", value, ", ".join([told, *([f"{lost} lost"] if lost else [])]))
        )
        if pair.score is not None:
            note = f"speed × {pair.score.measured} of {plural(pair.score.of, 'cell')}"
            figures.append(KeyFigure(f"score, {name}", f"{pair.score.value:.1f}", note))
    return tuple(figures)


def _overall_section(comparison: Comparison) -> Section:
    columns = (
        Column("against " + shortened(comparison.names[0])),
        Column("metric"),
        Column("change", True),
        Column("95 % interval", True),
        Column("cells", True),
        Column("with warnings", True),
        Column("verdict"),
    )
    rows = [
        (
            Value(shortened(pair.other.name)),
            Value(METRIC_WORDS[one.metric]),
            Value(change_words(one.ratio), one.ratio.value - 1),
            Value(interval_words(one.ratio)),
            Value(str(one.cells), one.cells),
            Value(str(one.flagged), one.flagged),
            _verdict_value(one.verdict),
        )
        for pair in comparison.pairs
        for one in pair.overall
    ]
    if not rows:
        return Section("Overall", "overall", (Paragraph("No cell was measured on both sides."),))
    blocks: list[Block] = [
        Paragraph(
            "The geometric mean of the cells' ratios, each cell counting once; more is better but for step p95 "
            "and memory."
        ),
        Table("Overall", columns, tuple(rows)),
    ]
    charts = _charts(comparison)
    if charts:
        decided = [change for pair in comparison.pairs for _, change in pair.decided_by(comparison.metrics)]
        if any(change.ratio.interval != _drawn_interval(change.ratio) for change in decided):
            text = f"Intervals whose ends are over {_VAGUE:g} times apart are not drawn; the table holds them."
            blocks.append(Paragraph(text, of_charts=True))
        blocks.append(ChartGrid(tuple(charts)))
    scores = [f"{pair.other.name}: {score_words(pair.score)}." for pair in comparison.pairs if pair.score is not None]
    if scores:
        text = (
            "Score: 100 × speed against the reference over the cells that both measured × the share of the reference's "
        )
        blocks += [Paragraph(text + "measured cells that were measured too."), Bullets(tuple(map(shortened, scores)))]
    return Section("Overall", "overall", tuple(blocks))


def _charts(comparison: Comparison) -> list[Chart]:
    """Every cell's change with its interval, from the worst to the best."""
    found = []
    for pair in comparison.pairs:
        changes = [change for _, change in pair.decided_by(comparison.metrics)]
        if len(changes) < 2:
            continue
        changes.sort(key=lambda change: change.ratio.log)
        if len(changes) > _MAX_POINTS:
            changes = [*changes[: _MAX_POINTS // 2], *changes[-_MAX_POINTS // 2 :]]
        ends = [_drawn_interval(change.ratio) or (change.ratio.value,) * 2 for change in changes]
        places = tuple(float(number) for number in range(1, len(changes) + 1))
        title = f"{shortened(pair.other.name)} against {shortened(pair.reference.name)}"
        series = [
            Series(
                "change with 95 % interval",
                places,
                tuple((change.ratio.value - 1) * 100 for change in changes),
                tuple((low - 1) * 100 for low, _ in ends),
                tuple((high - 1) * 100 for _, high in ends),
            )
        ]
        series += [
            Series(
                f"threshold {format_change(share)}",
                (0.5, places[-1] + 0.5),
                (share * 100,) * 2,
                reference=True,
                legend=False,
            )
            for share in (-comparison.threshold, comparison.threshold)
        ]
        found.append(
            Chart(
                name=chart_name("changes", title),
                title=title,
                summary=f"The change of each cell with its interval, {title}, from lowest to highest.",
                x_label="cells, from lowest to highest",
                y_label="change, %",
                series=tuple(series),
                x_ticks=tuple(spread_out(places, _MAX_TICKS)),
                y_from_zero=False,
                lines=False,
            )
        )
    return found


def _drawn_interval(ratio: LogRatio) -> tuple[float, float] | None:
    interval = ratio.interval
    return interval if interval is not None and interval[1] <= _VAGUE * interval[0] else None


def _cells_section(comparison: Comparison) -> Section:
    blocks: list[Block] = []
    for pair in comparison.pairs:
        names = (shortened(pair.reference.name), shortened(pair.other.name))
        columns = (
            Column("cell", prose=True),
            Column("metric"),
            Column(names[0], True),
            Column(names[1], True),
            Column("change", True),
            Column("95 % interval", True),
            Column("p, corrected", True),
            Column("launches", True),
            Column("verdict"),
            Column("warnings"),
        )
        rows = tuple(_row(cell, change) for cell in pair.cells for change in cell.changes)
        if rows:
            blocks.append(Table(f"{names[1]} against {names[0]}", columns, rows, searchable=True))
        others = [cell for cell in pair.cells if cell.outcome is not Outcome.COMPARED]
        if others:
            blocks.append(_others_table(others, names))
        blocks += [Bullets(tuple(f"{note}." for note in pair.notes))] if pair.notes else []
        problems = (*pair.reference.problems, *pair.other.problems)
        blocks += [Bullets(tuple(shortened(f"Left out: {problem}") for problem in problems))] if problems else []
    used = dict.fromkeys(change.verdict for pair in comparison.pairs for cell in pair.cells for change in cell.changes)
    if used:
        blocks.append(
            Bullets(tuple(f"{verdict.value}: {verdict.explanation}." for verdict in Verdict if verdict in used))
        )
    return Section("Cells", "cells", tuple(blocks))


def _row(cell: CellComparison, change: Change) -> tuple[Value, ...]:
    return (
        Value(result_words(cell.cell)),
        Value(metric_words(change.metric, change.detail)),
        Value(level_words(change.metric, change.before), change.before),
        Value(level_words(change.metric, change.after), change.after),
        Value(change_words(change.ratio), change.ratio.value - 1),
        Value(interval_words(change.ratio)),
        optional_value(change.adjusted_p, lambda p: f"{p:.3f}" if p >= 0.001 else "< 0.001"),
        Value(f"{change.launches[0]}, {change.launches[1]}", min(change.launches)),
        _verdict_value(change.verdict),
        Value(", ".join(cell.flags), None, Tone.CAUTION if cell.flags else Tone.PLAIN),
    )


def _verdict_value(verdict: Verdict) -> Value:
    return Value(verdict.value, verdict.value, _TONES.get(verdict, Tone.CAUTION))


def _others_table(cells: Sequence[CellComparison], names: tuple[str, str]) -> Table:
    tones = {Outcome.LOST: Tone.BAD, Outcome.GAINED: Tone.GOOD}
    rows = tuple(
        (
            Value(result_words(cell.cell)),
            Value(cell.outcome.value, cell.outcome.value, tones.get(cell.outcome, Tone.DIM)),
            Value(outcome_words(cell, names)),
        )
        for cell in cells
    )
    columns = (Column("cell", prose=True), Column("outcome"), Column("why", prose=True))
    return Table(f"Cells that were not compared, {names[1]} against {names[0]}", columns, rows, searchable=True)


def _differences_section(comparison: Comparison) -> Section:
    if not comparison.differences:
        return Section("Differences", "differences", (Paragraph("Machines, software and settings are the same."),))
    columns = (Column("what"), *(Column(shortened(name), prose=True) for name in comparison.names))
    rows = tuple(
        (
            Value(shortened(one.what), None, Tone.CAUTION if one.forbids else Tone.PLAIN),
            *(Value(shortened(value)) if value else DASH for value in one.values),
        )
        for one in comparison.differences
    )
    return Section("Differences", "differences", (Table("What is not the same", columns, rows),))


def _method_section(comparison: Comparison) -> Section:
    items = [
        "A change is the ratio of geometric means over launches; its interval is Welch's t on the logarithms of each "
        "launch's figure. Steps are never pooled: they are not independent.",
        f"Better or worse needs p < {LEVEL:g} after Holm's correction over the cells of a metric and their mean, and a "
        "change beyond "
        f"{format_percent(comparison.threshold, 1)}. With fewer than {MIN_LAUNCHES} launches on a side nothing "
        "is decided.",
        "An interval holds what differs from launch to launch. What differs between two occasions as a whole (another "
        "neighbour on the machine, a warmer room) is in no interval: measure the reference again to see it.",
        "The overall interval takes the cells' ratios as independent.",
    ]
    if comparison.prices:
        prices = ", ".join(
            f"{shortened(name)} ${price:.2f}" for name, price in zip(comparison.names, comparison.prices, strict=True)
        )
        items.append(f"Prices of a device and hour: {prices}.")
    return Section("Method and caveats", "method", (Bullets(tuple(items)),))


def _pair_json(pair: Pair, metrics: Sequence[Metric]) -> dict[str, object]:
    score = pair.score
    return {
        "reference": pair.reference.name,
        "other": pair.other.name,
        "overall": [
            {
                "metric": one.metric.value,
                "ratio": one.ratio.value,
                "interval": one.ratio.interval,
                "cells": one.cells,
                "flagged": one.flagged,
                "verdict": one.verdict.value,
            }
            for one in pair.overall
        ],
        "score": None
        if score is None
        else {"value": score.value, "ratio": score.ratio, "measured": score.measured, "of": score.of},
        "regressions": pair.regressions(metrics),
        "overall_regressions": [metric.value for metric in pair.overall_regressions(metrics)],
        "undecided": pair.undecided(metrics),
        "notes": list(pair.notes),
        "cells": [_cell_json(cell) for cell in pair.cells],
    }


def _cell_json(cell: CellComparison) -> dict[str, object]:
    return {
        "cell_id": cell.cell.cell.id,
        "other_cell_id": None if cell.after is None else cell.after.cell.id,
        "outcome": cell.outcome.value,
        "states": [None if side is None else side.state.value for side in (cell.before, cell.after)],
        "reasons": [None if side is None else side.reason for side in (cell.before, cell.after)],
        "flags": list(cell.flags),
        "changes": [
            {
                "metric": change.metric.value,
                "detail": change.detail,
                "before": change.before,
                "after": change.after,
                "ratio": change.ratio.value,
                "interval": change.ratio.interval,
                "p": change.ratio.p,
                "p_corrected": change.adjusted_p,
                "launches": list(change.launches),
                "verdict": change.verdict.value,
            }
            for change in cell.changes
        ],
    }
