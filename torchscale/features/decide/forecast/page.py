"""Predictions as a document: charts of measured points, prediction and interval, and a table, for
each series."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torchscale.features.decide.forecast.predict import (
    Prediction,
    PredictionBasis,
    SeriesPrediction,
)
from torchscale.features.decide.forecast.series import MeasuredCount, latency_between_nodes
from torchscale.report.charts import Chart, ChartSeries, chart_name
from torchscale.report.document import Block, Bullets, ChartGrid, Document, Paragraph, Section
from torchscale.report.table import ColumnOf, Table, table_of
from torchscale.report.values import TableValue, only_if, shortened
from torchscale.util.interval_text import format_ends
from torchscale.util.units import format_percent, format_rate, format_seconds
from torchscale.util.words import plural

LAW = "ring"
"""Name of the law: collectives as rings within and across nodes, latency, stragglers."""
_MAX_SERIES = 40
"""Charts of a document; the JSON has every series."""


@dataclass(frozen=True)
class PredictionReport:
    """Every series of a source.

    Attributes:
        source: Path of the source.
        outcomes: One a series.
        price: Price of a GPU and hour; ``None`` without one.
        notes: What was assumed.
    """

    source: str
    outcomes: tuple[SeriesPrediction, ...]
    price: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def predictions(self) -> tuple[Prediction, ...]:
        """Predictions of every series, by count."""
        return tuple(one for outcome in self.outcomes for one in outcome.predictions)

    @property
    def refused(self) -> str | None:
        """Each reason that a count has no prediction, with its series where there are several;
        ``None`` without any."""
        return "; ".join(self.refusals) or None

    @property
    def refusals(self) -> tuple[str, ...]:
        """Reasons that counts have no prediction, one by one, with their series where there are
        several."""
        return tuple(
            f"{series_label(outcome)}: {reason}" if len(self.outcomes) > 1 else reason
            for outcome in self.outcomes
            for reason in outcome.refusals
        )


def series_label(outcome: SeriesPrediction) -> str:
    """The name of a series for people."""
    return shortened(outcome.series.name, 120) or "the table"


def exposure_sentence(outcome: SeriesPrediction) -> str:
    """A sentence that says from which count on communication costs time."""
    largest = outcome.series.points[-1].gpus
    if outcome.series.points[-1].exposed_share is not None:
        if outcome.exposed_from is None:
            return (
                f"Up to {plural(largest, 'GPU')} gradient sync is hidden behind the backward pass."
            )
        return (
            f"From {plural(outcome.exposed_from, 'GPU')} on gradient sync is "
            f"exposed{_latency(outcome)}."
        )
    if outcome.exposed_from is None:
        return (
            f"Up to {plural(largest, 'GPU')} a sample costs no more GPU time than noise explains: "
            "communication is hidden."
        )
    return (
        f"From {plural(outcome.exposed_from, 'GPU')} on a sample costs more GPU time than noise "
        "explains: "
        "communication or waiting is exposed."
    )


def _latency(outcome: SeriesPrediction) -> str:
    measured = latency_between_nodes(outcome.series.points)
    if measured is None:
        return ""
    point, latency = measured
    share = format_percent(latency.share)
    return (
        f"; over {point.nodes:,} nodes {share} of the time of its all-reduces is latency, which "
        "grows with the number of nodes"
    )


def prediction_table(outcome: SeriesPrediction, *, with_cost: bool) -> Table:
    """A row for each requested count."""
    unit = outcome.series.unit
    columns: tuple[ColumnOf[Prediction], ...] = (
        ColumnOf("GPUs", lambda one: one.gpus, "{:,}".format, identifies=True),
        ColumnOf("nodes", lambda one: one.nodes, "{:,}".format),
        ColumnOf(f"throughput, {unit}", lambda one: one.throughput, format_rate),
        ColumnOf("90 % interval", _interval, numeric=True),
        ColumnOf("efficiency", lambda one: one.efficiency, format_percent),
        ColumnOf("basis", lambda one: one.basis.value),
        ColumnOf("time per million", lambda one: one.seconds_per_million, format_seconds),
        ColumnOf(
            "cost per million",
            lambda one: one.cost_per_million,
            lambda value: f"${format_rate(value)}",
            shown=with_cost,
        ),
    )
    return table_of(f"Predictions, {series_label(outcome)}", columns, outcome.predictions)


def _interval(one: Prediction) -> TableValue:
    return TableValue(format_ends(format_rate(one.low), format_rate(one.high)), one.low)


def prediction_document(report: PredictionReport) -> Document:
    """The report of ``torchscale predict``; charts of the first series where there are many."""
    shown = report.outcomes[:_MAX_SERIES]
    sections = [_section(outcome, number, report) for number, outcome in enumerate(shown)]
    notes = list(report.notes)
    if len(shown) < len(report.outcomes):
        notes.append(f"The first {_MAX_SERIES} of {len(report.outcomes)} series are shown.")
    return Document(
        title="Predicted scaling",
        subtitle=shortened(report.source),
        verdict=(
            "Predictions, not measurements: only points named measured were measured.",
            *only_if(report.refused, f"Refused: {report.refused}."),
            *notes,
        ),
        key_figures=(),
        sections=(
            *sections,
            Section(
                "Method",
                "method",
                (Paragraph("The law, its interval and its errors: torchscale docs predict."),),
            ),
        ),
    )


def _section(outcome: SeriesPrediction, number: int, report: PredictionReport) -> Section:
    blocks: list[Block] = []
    if outcome.predictions:
        blocks.append(ChartGrid(prediction_charts(outcome)))
        blocks.append(prediction_table(outcome, with_cost=report.price is not None))
        blocks.append(Paragraph(exposure_sentence(outcome)))
        if report.price is not None:
            blocks.append(
                Paragraph(
                    f"Cost at ${report.price:.2f} per GPU and hour; start-up time is not included."
                )
            )
    if outcome.refusals:
        blocks.append(Bullets(tuple(f"Refused: {reason}." for reason in outcome.refusals)))
    return Section(f"Prediction: {series_label(outcome)}", f"prediction-{number}", tuple(blocks))


def prediction_charts(outcome: SeriesPrediction) -> tuple[Chart, Chart]:
    """Throughput against GPUs, and efficiency, where the interval is seen: what was measured, what
    is predicted with its interval, and the ideal."""
    first = outcome.series.points[0]
    return (
        _chart(outcome, "throughput", outcome.series.unit, lambda _: 1.0, log_y=True),
        _chart(
            outcome,
            "efficiency",
            "efficiency, %",
            lambda gpus: 100 * first.cost / gpus,
            log_y=False,
        ),
    )


def _chart(
    outcome: SeriesPrediction,
    quantity: str,
    y_label: str,
    scale: Callable[[float], float],
    *,
    log_y: bool,
) -> Chart:
    """``scale`` is what the throughput at a count is multiplied by."""
    points = outcome.series.points
    counts = tuple(float(point.gpus) for point in points)
    rates = tuple(point.throughput for point in points)
    if any(len(point.launches) > 1 for point in points):
        launches = tuple(point.launches for point in points)
    else:
        launches = ()
    between = [one for one in outcome.predictions if one.basis is PredictionBasis.INTERPOLATED]
    beyond = [one for one in outcome.predictions if one.basis is PredictionBasis.EXTRAPOLATED]
    ends = tuple(sorted({*counts, *(float(one.gpus) for one in outcome.predictions)}))
    series = [ChartSeries("measured", counts, rates, launches=launches)]
    if between:
        series.append(_line("predicted between measured counts", between))
    if beyond:
        series += [_line("predicted, extrapolated", beyond), *_band(points[-1], beyond)]
    ideal = tuple(rates[0] * count / counts[0] for count in ends)
    series.append(ChartSeries("ideal", ends, ideal, reference=True))
    title = series_label(outcome)
    extrapolated = ""
    if beyond:
        extrapolated = f"; beyond {points[-1].gpus:,} GPUs it is extrapolated"
    return Chart(
        name=chart_name(f"prediction-{quantity}", title),
        title=f"{title}: {quantity}",
        summary=f"Measured and predicted {quantity} against the number of GPUs for "
        f"{title}{extrapolated}.",
        x_label="GPUs",
        y_label=y_label,
        series=tuple(_scaled(one, scale) for one in series),
        x_ticks=ends,
        y_from_zero=False,
        log_x=True,
        log_y=log_y,
    )


def _scaled(series: ChartSeries, scale: Callable[[float], float]) -> ChartSeries:
    factors = [scale(x) for x in series.x]

    def scaled(values: Sequence[float]) -> tuple[float, ...]:
        return tuple(value * factor for value, factor in zip(values, factors, strict=False))

    launches = tuple(
        tuple(value * factor for value in values)
        for values, factor in zip(series.launches, factors, strict=False)
    )
    return replace(
        series,
        y=scaled(series.y),
        low=scaled(series.low),
        high=scaled(series.high),
        launches=launches,
    )


def _band(largest: MeasuredCount, predictions: Sequence[Prediction]) -> list[ChartSeries]:
    """The ends of the 90 % interval as lines that open at the largest measured count."""
    x = (float(largest.gpus), *(float(one.gpus) for one in predictions))
    ends = ((one.low for one in predictions), (one.high for one in predictions))
    return [
        ChartSeries(
            "90 % interval",
            x,
            (largest.throughput, *end),
            reference=True,
            follows=True,
            legend=number == 0,
        )
        for number, end in enumerate(ends)
    ]


def _line(name: str, predictions: Sequence[Prediction]) -> ChartSeries:
    return ChartSeries(
        name,
        tuple(float(one.gpus) for one in predictions),
        tuple(one.throughput for one in predictions),
        tuple(one.low for one in predictions),
        tuple(one.high for one in predictions),
    )
