"""The rounds of an acceptance in a document: a chart of each figure with what it is held against, and
its levels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from torchscale.features.validate.acceptance.judge import is_suspected
from torchscale.features.validate.acceptance.limits import REFERENCES
from torchscale.features.validate.acceptance.rounds import undisturbed
from torchscale.features.validate.acceptance.verdict import (
    interval_text,
    levels_text,
    limit_text,
)
from torchscale.report.charts import Chart, ChartSeries, chart_name
from torchscale.report.document import Block, ChartGrid, Paragraph, Section
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue, Tone, only_if, shortened, text_value
from torchscale.schema.node.acceptance import (
    Acceptance,
    AcceptanceRun,
    FigureStatus,
    JudgedFigure,
    Series,
)
from torchscale.util.words import plural

_TONES: Mapping[FigureStatus, Tone] = MappingProxyType(
    {
        FigureStatus.WITHIN: Tone.GOOD,
        FigureStatus.UNCLEAR: Tone.CAUTION,
        FigureStatus.FLAPPING: Tone.BAD,
        FigureStatus.LOW: Tone.BAD,
        FigureStatus.NO_LIMIT: Tone.DIM,
    }
)
_MOST_LINES = 7
"""Parts of a chart, the slowest: as many as there are colours."""
_MOST_TICKS = 12
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"))

Judged = Sequence[tuple[Series, JudgedFigure]]
"""Parts of one figure, the slowest first."""


def rounds_section(acceptance: Acceptance, node: str = "") -> Section:
    """Charts of all figures, and a table: of each figure the slowest part, and every part with two
    levels or not within its limit. ``node``: which one, in a document of several."""
    run = acceptance.run
    figures = {(each.figure, each.part): each for each in acceptance.figures}
    by_name: dict[str, list[tuple[Series, JudgedFigure]]] = {}
    for series in run.series:
        figure = figures.get((series.figure, series.part))
        if figure is not None:
            by_name.setdefault(series.figure, []).append((series, figure))
    groups = [sorted(parts, key=lambda part: part[1].rate or 0.0) for parts in by_name.values()]
    shown = [
        figure
        for parts in groups
        for place, (_, figure) in enumerate(parts)
        if place == 0 or figure.modes or is_suspected(figure)
    ]
    text = (
        f"{plural(len(run.rounds), 'round')}, {len(undisturbed(run))} undisturbed. A rate is that "
        "over a whole round. The table has the slowest part of each figure, and every part that has "
        "two levels or is not within its limit."
    )
    crosses = "Crosses are disturbed rounds, which do not count."
    charts = tuple(_chart(parts, run, node) for parts in groups)
    blocks: tuple[Block, ...] = (
        Paragraph(text),
        *only_if(len(undisturbed(run)) < len(run.rounds), Paragraph(crosses, of_charts=True)),
        *only_if(charts, ChartGrid(charts)),
        _figures_table(shown),
    )
    title = f"Rounds of {node}" if node else "Rounds"
    return Section(title, chart_name("rounds", node).rstrip("-"), blocks)


def _chart(parts: Judged, run: AcceptanceRun, node: str) -> Chart:
    shown = parts[:_MOST_LINES]
    factor, unit = _scale([value for series, _ in shown for value in series.values])
    unit += shown[0][0].unit
    used, count = undisturbed(run), len(run.rounds)
    title = shown[0][0].figure
    lines = [
        ChartSeries(series.part, *_points(series, used, factor), legend=len(shown) > 1)
        for series, _ in shown
        if any(series.values[it] is not None for it in used)
    ]
    disturbed = [it for it in range(count) if it not in used]
    points = [_points(series, disturbed, factor) for series, _ in shown]
    marks = ChartSeries(
        "disturbed round",
        tuple(x for xs, _ in points for x in xs),
        tuple(y for _, ys in points for y in ys),
        marks=True,
    )
    more = ""
    if len(parts) > len(shown):
        more = f", the {len(shown)} slowest of {len(parts)}"
    return Chart(
        name=chart_name("rounds", f"{node} {title}"),
        title=f"{title}{more}",
        summary=f"{title} by round: {levels_text(shown[0][1]) or 'not measured'}",
        x_label="round",
        y_label=unit,
        series=(*lines, *only_if(marks.x, marks), *_references(shown[0][1], count, factor)),
        x_ticks=_ticks(count),
        y_from_zero=False,
    )


def _points(
    series: Series, rounds: Sequence[int], factor: float
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Number and rate of the rounds that have one."""
    known = [(it + 1.0, value / factor) for it in rounds if (value := series.values[it])]
    return tuple(x for x, _ in known), tuple(y for _, y in known)


def _references(figure: JudgedFigure, rounds: int, factor: float) -> Iterator[ChartSeries]:
    """What the slowest part is held against, and the limit below it."""
    if figure.limit is None:
        return
    ends = (0.5, rounds + 0.5)
    kind = REFERENCES[figure.limit.kind]
    # both are drawn alike: the reference is always the upper one
    names = (f"{kind} (upper line)", "limit (lower line)")
    for name, rate in zip(names, (figure.limit.reference, figure.limit.rate), strict=True):
        yield ChartSeries(name, ends, (rate / factor,) * 2, reference=True)


def _scale(values: Sequence[float | None]) -> tuple[float, str]:
    """Factor and prefix of the unit for the largest of them."""
    largest = max((value for value in values if value is not None), default=0.0)
    return next(((factor, prefix) for factor, prefix in _PREFIXES if largest >= factor), (1.0, ""))


def _ticks(rounds: int) -> tuple[float, ...]:
    """A tick a round, or every second, fifth … where there are many."""
    steps = (1, 2, 5, 10, 20, 50, 100, 1000)
    step = next(step for step in steps if rounds <= step * _MOST_TICKS or step == steps[-1])
    return (1.0, *(float(it) for it in range(step, rounds + 1, step) if it > 1))


def _figures_table(figures: Sequence[JudgedFigure]) -> Table:
    columns = (
        Column("result"),
        Column("figure"),
        Column("part"),
        Column("levels", prose=True),
        Column("95 % interval", prose=True),
        Column("limit", prose=True),
        Column("because", prose=True),
    )
    return Table("Speeds", columns, tuple(_figure_row(figure) for figure in figures))


def _figure_row(figure: JudgedFigure) -> tuple[TableValue, ...]:
    because = figure.because
    if figure.cause is not None:
        because = f"{figure.cause.value}: {figure.because}"
    return (
        TableValue(figure.status.value, None, _TONES[figure.status]),
        TableValue(figure.figure),
        TableValue(shortened(figure.part)),
        text_value(levels_text(figure)),
        text_value(interval_text(figure)),
        text_value(shortened(limit_text(figure))),
        text_value(shortened(because)),
    )
