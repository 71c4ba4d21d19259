"""Predictions with a calibrated 90 % interval, or the reason why there is none and what to
measure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from torchscale.analysis.training.scaling import GOOD
from torchscale.features.decide.forecast.law import Fit, fit_law
from torchscale.features.decide.forecast.series import MeasuredCount, MeasuredSeries
from torchscale.util.units import format_percent

LOW_MULTIPLE, HIGH_MULTIPLE = 1.9, 1.3
"""Ends of the 90 % interval in standard deviations of the law, below and above the prediction: the
5 % and 95 % quantiles of held-out errors over published tables, each source left out in turn, their
mean rounded up (``docs/predict.md``)."""
LARGEST_FACTOR = 16
"""Requests beyond this multiple of the largest measured count are refused. Published tables seldom
reach beyond 4 times the measured counts, so the interval was not checked further out; it widens
with each doubling."""
FALL_LIMIT = 0.05
"""Throughput that falls by more than this between two counts, and by more than its noise, follows
no such law."""
RISE_LIMIT = 0.10
"""The same for throughput per GPU that rises: single launches of published tables differ by up to 8
%."""
_NOISE_DEVIATIONS = 3.0
"""Differences within three standard errors are taken as noise."""
_EXPOSED = 0.02
"""A cost per sample that has grown by less is not told apart from noise between launches; exposed
gradient sync of less than this share of a step is no reason to act."""
_EQUAL_WORK = 0.01
"""Work per GPU may differ by rounding of a batch alone."""
_MILLION = 1e6


class PredictionBasis(str, Enum):
    """What a prediction stands on."""

    MEASURED = "measured"
    INTERPOLATED = "interpolated"
    EXTRAPOLATED = "extrapolated"


@dataclass(frozen=True)
class Prediction:
    """A prediction for one count of GPUs.

    Attributes:
        series: The name of its series.
        gpus, nodes: Counts of the request.
        throughput: Samples or tokens per second of all GPUs; the measured median where it was
            measured.
        low, high: 90 % interval of what a launch there would measure.
        efficiency: Throughput per GPU over that of the smallest measured count.
        basis: Measured, between measured counts, or beyond them.
        seconds_per_million: Time for a million samples or tokens.
        cost_per_million: Price of these; ``None`` without a price.
        step_seconds: Time of one step; ``None`` where the work of a step is not known.
    """

    series: str
    gpus: int
    nodes: int
    throughput: float
    low: float
    high: float
    efficiency: float
    basis: PredictionBasis
    seconds_per_million: float
    cost_per_million: float | None = None
    step_seconds: float | None = None


@dataclass(frozen=True)
class SeriesPrediction:
    """What came of one series.

    Attributes:
        series: The measurements.
        predictions: Predictions that could be made, by count.
        refusals: A sentence for each reason that something was not answered, with what to measure.
        exposed_from: The smallest measured count from which on communication is no longer hidden
            (:func:`exposed_from`); ``None`` where no measured count shows it.
    """

    series: MeasuredSeries
    predictions: tuple[Prediction, ...]
    refusals: tuple[str, ...]
    exposed_from: int | None = None


def predict_series(
    series: MeasuredSeries,
    counts: Sequence[int],
    *,
    price: float | None = None,
    link: str | None = None,
) -> SeriesPrediction:
    """Predict the throughput of a series at counts of GPUs.

    Args:
        series: Measurements of one workload, with equal work per GPU at every count.
        counts: Requested counts, all positive.
        price: Price of a GPU and hour.
        link: Catalogue name of the network between the nodes asked for; ``None`` for the measured
            one.
    """
    refusal = refuse_series(series, link)
    if refusal is not None:
        return SeriesPrediction(series, (), (refusal,))
    fit = fit_law(series.points)
    predictions = []
    refusals = []
    for gpus in sorted(set(counts)):
        reason = refuse_count(series, gpus)
        if reason is None:
            predictions.append(_prediction(series, fit, gpus, price))
        else:
            refusals.append(reason)
    return SeriesPrediction(
        series, tuple(predictions), tuple(dict.fromkeys(refusals)), exposed_from(series)
    )


def refuse_series(series: MeasuredSeries, link: str | None = None) -> str | None:
    """Why nothing can be said of a series, and what to measure; ``None`` where something can."""
    points = series.points
    if len(points) < 2:
        only = points[0]
        return (
            f"one count was measured ({_gpus(only.gpus)}); measure a second one, three launches "
            "each"
        )
    if link is not None and series.link is not None and link != series.link:
        return (
            f"the network {link} was never measured, only {series.link}; measure two counts of "
            f"nodes over {link}, three launches each"
        )
    works = [point.work / point.gpus for point in points if point.work is not None]
    if works and max(works) > min(works) * (1 + _EQUAL_WORK):
        return (
            f"the work of a GPU and step differs between counts ({min(works):g} to "
            f"{max(works):g}); only weak scaling can be predicted: measure with a fixed batch per "
            "GPU"
        )
    return next(
        (
            reason
            for pair in itertools.pairwise(points)
            if (reason := _not_monotone(*pair)) is not None
        ),
        None,
    )


def _not_monotone(smaller: MeasuredCount, larger: MeasuredCount) -> str | None:
    noise = _NOISE_DEVIATIONS * math.hypot(smaller.error, larger.error)
    again = f"measure both again, {_more_launches(smaller, larger)} launches each"
    between = f"from {smaller.gpus} to {_gpus(larger.gpus)}"
    fall = 1 - larger.throughput / smaller.throughput
    if fall > max(FALL_LIMIT, noise):
        return (
            f"throughput falls by {format_percent(fall, 0)} {between}, more than noise explains; "
            f"{again}"
        )
    rise = smaller.cost / larger.cost - 1
    if rise > max(RISE_LIMIT, noise):
        return (
            f"throughput per GPU rises by {format_percent(rise, 0)} {between}, more than noise "
            f"explains; {again}, with equal settings"
        )
    return None


def _more_launches(*points: MeasuredCount) -> str:
    """How many launches tell more than those that are there."""
    fewest = min(len(point.launches) for point in points)
    return next((word for count, word in ((3, "three"), (5, "five")) if fewest < count), "more")


def refuse_count(series: MeasuredSeries, gpus: int) -> str | None:
    """Why a series says nothing of a count, and what to measure; ``None`` where it does."""
    points = series.points
    largest = points[-1]
    nodes = series.nodes_of(gpus)
    most_nodes = max(point.nodes for point in points)
    if gpus > LARGEST_FACTOR * largest.gpus:
        return (
            f"{_gpus(gpus)} are more than {LARGEST_FACTOR} times the {largest.gpus} measured; "
            f"measure {math.ceil(gpus / LARGEST_FACTOR)} or more"
        )
    if nodes > most_nodes:
        if most_nodes == 1:
            return (
                f"{_gpus(gpus)} take {nodes} nodes of {series.gpus_per_node}, and only one node "
                "was measured: the network between nodes is unknown; measure two nodes, three "
                "launches each"
            )
        if len({point.nodes for point in points}) < 2:
            return (
                f"{_gpus(gpus)} take {nodes} nodes, and only {most_nodes} nodes were measured; "
                "measure another count of nodes, three launches each"
            )
    fullest = max(point.local for point in points)
    local = gpus / nodes
    if local > fullest * (1 + 1e-9):
        if fullest <= 1:
            return (
                f"{_gpus(gpus)} on {nodes} nodes share a node, and every measured node had one "
                f"GPU: the links within a node are unknown; measure a node with {math.ceil(local)} "
                "GPUs, three launches"
            )
        return _unsteady_node(points, gpus)
    return None


def _unsteady_node(points: Sequence[MeasuredCount], gpus: int) -> str | None:
    in_node = [point for point in points if point.nodes == 1]
    if len(in_node) < 2:
        return None
    efficiency = in_node[0].cost / in_node[-1].cost
    if efficiency >= GOOD:
        return None
    return (
        f"a node already loses {format_percent(1 - efficiency, 0)} of its throughput per GPU at "
        f"{_gpus(in_node[-1].gpus)}: its links, loaders or memory are at a limit that "
        f"{_gpus(gpus)} would meet in full; measure a full node, three launches"
    )


def exposed_from(series: MeasuredSeries) -> int | None:
    """The smallest measured count from which on communication is exposed at every count: by the
    exposed gradient sync where that was measured, else where a sample costs more than noise
    explains."""
    base = min(point.cost for point in series.points)
    found = None
    for point in reversed(series.points):
        if not _is_exposed(point, base):
            break
        found = point.gpus
    return found


def _is_exposed(point: MeasuredCount, base: float) -> bool:
    if point.exposed_share is not None:
        return point.exposed_share > _EXPOSED
    return point.cost / base - 1 > max(_EXPOSED, _NOISE_DEVIATIONS * point.noise)


def _prediction(series: MeasuredSeries, fit: Fit, gpus: int, price: float | None) -> Prediction:
    points = series.points
    first, largest = points[0], points[-1]
    measured = next((point for point in points if point.gpus == gpus), None)
    nodes = series.nodes_of(gpus)
    if measured is not None:
        throughput, deviation, basis = (
            measured.throughput,
            measured.noise * math.sqrt(2),
            PredictionBasis.MEASURED,
        )
    else:
        throughput, deviation = fit.throughput(gpus, nodes), fit.deviation(gpus, nodes)
        basis = PredictionBasis.INTERPOLATED
        if gpus > largest.gpus or gpus < first.gpus:
            basis = PredictionBasis.EXTRAPOLATED
    work = next(
        (point.work / point.gpus * gpus for point in points if point.work is not None), None
    )
    seconds = _MILLION / throughput
    return Prediction(
        series=series.name,
        gpus=gpus,
        nodes=nodes,
        throughput=throughput,
        low=throughput * math.exp(-LOW_MULTIPLE * deviation),
        high=throughput * math.exp(HIGH_MULTIPLE * deviation),
        efficiency=throughput / gpus * first.cost,
        basis=basis,
        seconds_per_million=seconds,
        cost_per_million=None if price is None else price * gpus * seconds / 3600,
        step_seconds=None if work is None else work / throughput,
    )


def _gpus(count: int) -> str:
    return f"{count:,} GPU" + "s" * (count != 1)
