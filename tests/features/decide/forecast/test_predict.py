"""Predictions with their intervals, and every refusal with what to measure."""

from __future__ import annotations

import math
import random

import pytest

from torchscale.features.decide.forecast.law import features
from torchscale.features.decide.forecast.predict import (
    PredictionBasis,
    SeriesPrediction,
    exposed_from,
    predict_series,
)
from torchscale.features.decide.forecast.series import MeasuredCount, MeasuredSeries, make_series


def series(
    *points: tuple[int, int, float], gpus_per_node: int = 8, link: str | None = None
) -> MeasuredSeries:
    """GPUs, nodes, throughput per GPU."""
    measured = [MeasuredCount(gpus, nodes, (gpus * rate,)) for gpus, nodes, rate in points]
    return make_series("resnet50", measured, gpus_per_node=gpus_per_node, link=link)


TWO_NODES = series((8, 1, 100.0), (16, 2, 95.0))


def refusal(outcome: SeriesPrediction) -> str:
    assert outcome.predictions == ()
    (reason,) = outcome.refusals
    return reason


def test_every_figure_of_a_prediction() -> None:
    measured = [MeasuredCount(8, 1, (800.0,), 256.0), MeasuredCount(16, 2, (1520.0,), 512.0)]
    outcome = predict_series(make_series("", measured), [32, 16], price=2.0)
    at_16, at_32 = outcome.predictions
    assert outcome.refusals == ()
    assert (at_16.throughput, at_16.basis) == (1520.0, PredictionBasis.MEASURED)
    assert at_16.efficiency == pytest.approx(0.95)
    assert at_16.low < 1520.0 < at_16.high
    assert (at_32.gpus, at_32.nodes, at_32.basis) == (32, 4, PredictionBasis.EXTRAPOLATED)
    assert at_32.low < at_32.throughput < at_32.high
    assert 2700 < at_32.throughput < 3040  # between 84 % and hold
    assert at_32.efficiency == pytest.approx(at_32.throughput / 3200)
    assert at_32.seconds_per_million == pytest.approx(1e6 / at_32.throughput)
    assert at_32.cost_per_million == pytest.approx(2.0 * 32 * at_32.seconds_per_million / 3600)
    assert at_32.step_seconds == pytest.approx(1024 / at_32.throughput)


def test_a_count_between_measured_ones_is_interpolated() -> None:
    outcome = predict_series(series((8, 1, 100.0), (16, 2, 95.0), (64, 8, 90.0)), [32])
    (between,) = outcome.predictions
    assert between.basis is PredictionBasis.INTERPOLATED
    assert 90 * 32 * 0.97 < between.throughput < 95 * 32 * 1.03


def test_the_interval_widens_with_the_distance() -> None:
    outcome = predict_series(TWO_NODES, [32, 64, 128, 256])
    widths = [(one.high - one.low) / one.throughput for one in outcome.predictions]
    assert widths == sorted(widths)
    assert widths[-1] > 1.5 * widths[0]


@pytest.mark.parametrize(
    ("measured", "gpus", "expected"),
    [
        (series((1, 1, 100.0), (8, 1, 95.0)), 16, ["only one node", "two nodes"]),
        (series((8, 1, 100.0)), 16, ["one count", "three launches"]),
        (series((16, 2, 100.0), (12, 2, 100.0)), 32, ["only 2 nodes", "another count of nodes"]),
        (TWO_NODES, 257, ["more than 16 times", "measure 17 or more"]),
        (series((8, 1, 100.0), (16, 2, 40.0)), 32, ["throughput falls by 20 %", "again"]),
        (series((8, 1, 100.0), (16, 2, 120.0)), 32, ["per GPU rises by 20 %", "again"]),
        (series((1, 1, 100.0), (2, 2, 95.0)), 16, ["share a node", "measure a node with 8 GPUs"]),
        (series((1, 1, 100.0), (4, 1, 70.0)), 8, ["loses 30 %", "full node"]),
    ],
)
def test_where_no_honest_answer_exists_it_is_refused(
    measured: MeasuredSeries, gpus: int, expected: list[str]
) -> None:
    reason = refusal(predict_series(measured, [gpus]))
    for words in expected:
        assert words in reason


def test_counts_that_can_be_answered_are_answered_beside_refused_ones() -> None:
    outcome = predict_series(TWO_NODES, [32, 512])
    assert [one.gpus for one in outcome.predictions] == [32]
    assert len(outcome.refusals) == 1


def test_another_network_than_the_measured_one_is_refused() -> None:
    measured = series((8, 1, 100.0), (16, 2, 95.0), link="ib-hdr")
    assert "ib-ndr was never measured, only ib-hdr" in refusal(
        predict_series(measured, [32], link="ib-ndr")
    )
    assert predict_series(measured, [32], link="ib-hdr").refusals == ()


def test_strong_scaling_is_refused() -> None:
    measured = [MeasuredCount(8, 1, (800.0,), 256.0), MeasuredCount(16, 2, (1500.0,), 256.0)]
    assert "weak scaling" in refusal(predict_series(make_series("", measured), [32]))


def test_noise_that_launches_show_excuses_a_difference() -> None:
    noisy = [
        MeasuredCount(8, 1, (600.0, 800.0, 1000.0)),
        MeasuredCount(16, 2, (1900.0, 1600.0, 2300.0)),
    ]
    assert predict_series(make_series("", noisy), [32]).refusals == ()
    precise = [
        MeasuredCount(8, 1, (799.0, 800.0, 801.0)),
        MeasuredCount(16, 2, (1899.0, 1900.0, 1901.0)),
    ]
    assert predict_series(make_series("", precise), [32]).refusals != ()


def test_exposure_begins_at_the_first_count_that_stays_dearer() -> None:
    assert exposed_from(series((1, 1, 100.0), (8, 1, 99.5), (16, 2, 90.0), (32, 4, 88.0))) == 16
    assert exposed_from(series((8, 1, 100.0), (16, 2, 99.5))) is None


def test_measured_gradient_sync_says_where_it_is_exposed() -> None:
    shares = ((8, 1, 0.001), (16, 2, 0.05), (32, 4, 0.08))
    points = [
        MeasuredCount(gpus, nodes, (gpus * 100.0,), exposed_share=share)
        for gpus, nodes, share in shares
    ]
    assert exposed_from(make_series("", points)) == 16
    assert exposed_from(make_series("", points[:1])) is None


def test_the_interval_holds_what_the_law_itself_would_measure() -> None:
    """Series drawn from the law and its priors: at least nine in ten of held-out counts lie within
    the interval."""
    generator = random.Random(7)
    inside = 0
    trials = 200
    for _ in range(trials):
        terms = [1.0, *(max(generator.gauss(m, s), 0.0) for m, s in ((0, 0.05), (0.01, 0.02), (0, 0.005), (0.05, 0.1),
                 (0.025, 0.03), (0, 0), (0.005, 0.005)))]  # fmt: skip
        points = []
        for gpus, nodes in ((8, 1), (16, 2), (32, 4)):
            cost = sum(
                term * feature for term, feature in zip(terms, features(gpus, nodes), strict=True)
            )
            points.append(
                MeasuredCount(gpus, nodes, (gpus / cost * math.exp(generator.gauss(0, 0.01)),))
            )
        (one,) = predict_series(make_series("", points[:2]), [32]).predictions
        inside += one.low <= points[2].throughput <= one.high
    assert inside / trials >= 0.88


def test_launches_that_disagree_are_no_fall() -> None:
    """Means of 2,122 and 2,129: two of three launches agree on one side, the third is a bad one.
    The medians fall by 17 %, and the spread of all launches explains that."""
    launches = (2402.0, 2400.0, 1564.0), (2000.0, 2000.0, 2387.0)
    points = [MeasuredCount(8, 1, launches[0]), MeasuredCount(16, 2, launches[1])]
    assert predict_series(make_series("", points), [32]).predictions
    agreed = [MeasuredCount(8, 1, (2400.0,) * 3), MeasuredCount(16, 2, (2000.0,) * 3)]
    reason = refusal(predict_series(make_series("", agreed), [32]))
    assert "falls by 17 %" in reason
    assert reason.endswith("measure both again, five launches each")
