"""The document of a prediction: what was measured and what was not stays apart."""

from __future__ import annotations

import pytest

from torchscale.features.decide.forecast.page import (
    PredictionReport,
    exposure_sentence,
    prediction_charts,
    prediction_document,
)
from torchscale.features.decide.forecast.predict import predict_series
from torchscale.features.decide.forecast.series import Latency, MeasuredCount, make_series


def report(*counts: int, rates: tuple[float, float] = (100.0, 95.0)) -> PredictionReport:
    points = [
        MeasuredCount(8, 1, (8 * rates[0], 8.1 * rates[0])),
        MeasuredCount(32, 4, (32 * rates[1],)),
    ]
    return PredictionReport(
        "points.csv", (predict_series(make_series("bert", points), counts, price=2.0),), 2.0
    )


def test_the_chart_has_measured_points_and_a_band_only_where_it_predicts() -> None:
    (outcome,) = report(8, 16, 64).outcomes
    throughput, efficiency = prediction_charts(outcome)
    measured, between, beyond, low, high, ideal = throughput.series
    assert (measured.x, measured.low) == ((8.0, 32.0), ())
    assert measured.launches == ((800.0, 810.0), (3040.0,))
    assert between.x == (16.0,)
    assert beyond.x == (64.0,)
    assert beyond.low[0] < beyond.y[0] < beyond.high[0]
    assert (low.x, low.y) == ((32.0, 64.0), (3040.0, beyond.low[0]))
    assert high.y == (3040.0, beyond.high[0])
    assert low.reference and high.reference and ideal.reference
    assert efficiency.series[-1].y == pytest.approx((100.0,) * len(ideal.x))
    assert efficiency.series[2].y[0] == pytest.approx(100 * outcome.predictions[-1].efficiency)


def test_the_document_says_that_it_predicts_and_what_it_refuses() -> None:
    document = prediction_document(report(64, 1000))
    assert document.verdict[0].startswith("Predictions, not measurements")
    assert "more than 16 times" in document.verdict[1]
    section, method = document.sections
    assert len(section.blocks) == 5
    assert "torchscale docs predict" in str(method.blocks)
    assert len(document.charts) == 2


def test_a_series_without_predictions_has_no_chart() -> None:
    document = prediction_document(report(64, rates=(100.0, 10.0)))
    assert document.charts == ()
    assert "throughput falls" in document.verdict[1]


def test_exposure_is_said_either_way() -> None:
    assert exposure_sentence(report(64).outcomes[0]).startswith("From 32 GPUs on")
    assert "communication is hidden" in exposure_sentence(
        report(64, rates=(100.0, 100.0)).outcomes[0]
    )


def test_measured_gradient_sync_is_named_as_such() -> None:
    points = [
        MeasuredCount(n, k, (n * 100.0,), exposed_share=share)
        for n, k, share in ((8, 1, 0.0), (16, 2, 0.04))
    ]
    outcome = predict_series(make_series("bert", points), [32])
    assert exposure_sentence(outcome) == "From 16 GPUs on gradient sync is exposed."


def test_measured_latency_is_said_of_the_largest_count_over_nodes() -> None:
    points = [
        MeasuredCount(8, 1, (800.0,), exposed_share=0.0, latency=Latency(0.9)),
        MeasuredCount(16, 2, (1500.0,), exposed_share=0.06, latency=Latency(0.705)),
    ]
    outcome = predict_series(make_series("bert", points), (32,))
    assert exposure_sentence(outcome) == (
        "From 16 GPUs on gradient sync is exposed; over 2 nodes 70.5 % of the time of its "
        "all-reduces is latency, which grows with the number of nodes."
    )
    assert "latency" not in exposure_sentence(
        predict_series(make_series("bert", points[:1] * 2), (32,))
    )
