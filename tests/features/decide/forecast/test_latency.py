"""The share of latency on links whose latency and bandwidth are known."""

from __future__ import annotations

import pytest

from torchscale.analysis.diagnosis.signals import LinkProbe
from torchscale.features.decide.forecast.latency import gradient_latency

MIB = 1 << 20
BYTES_PER_SECOND = 1e9


def link(latency: float, buckets: int, payload: int = 8 * MIB) -> LinkProbe:
    merged = -(-payload // (25 * MIB))
    of_bytes = payload / BYTES_PER_SECOND
    return LinkProbe(payload, buckets * latency + of_bytes, merged * latency + of_bytes)


@pytest.mark.parametrize("buckets", [2, 10, 100])
@pytest.mark.parametrize("latency", [1e-5, 1e-3])
@pytest.mark.parametrize("payload", [8 * MIB, 60 * MIB])
def test_the_share_is_that_of_the_link_with_and_without_a_curve(
    buckets: int, latency: float, payload: int
) -> None:
    truth = buckets * latency / (buckets * latency + payload / BYTES_PER_SECOND)
    with_curve = gradient_latency(link(latency, buckets, payload), buckets, latency, of_ring=False)
    assert with_curve is not None and with_curve.share == pytest.approx(truth)
    if buckets > 3:
        without = gradient_latency(link(latency, buckets, payload), buckets, None, of_ring=True)
        assert without is not None and without.share == pytest.approx(truth)
        assert without.of_ring


def test_one_bucket_needs_a_curve() -> None:
    one = link(1e-3, 1)
    assert gradient_latency(one, 1, None, of_ring=False) is None
    found = gradient_latency(one, 1, 1e-3, of_ring=False)
    assert found is not None and found.share == pytest.approx(1e-3 / one.as_bucketed_seconds)


@pytest.mark.parametrize(("as_bucketed", "merged"), [(0.01, 0.02), (0.02, 0.0), (1e-9, 1.0)])
def test_noise_gives_no_share_outside_0_to_1(as_bucketed: float, merged: float) -> None:
    for curve in (None, 0.0, 1e-3, 10.0):
        found = gradient_latency(LinkProbe(8 * MIB, as_bucketed, merged), 4, curve, of_ring=False)
        assert found is not None and 0 <= found.share <= 1


def test_a_link_that_took_no_time_says_nothing() -> None:
    assert gradient_latency(LinkProbe(0, 0.0, 0.0), 1, 1e-3, of_ring=False) is None
