"""Exposed gradient sync by hand."""

from __future__ import annotations

import pytest

from torchscale.features.decide.tune.buckets import Reduction, exposed_seconds, reduction
from torchscale.schema.launch.signals import LinkSample

MIB = 1 << 20


def link(bucketed: float, merged: float, payload_bytes: int = 10 * MIB) -> LinkSample:
    return LinkSample(
        payload_bytes=payload_bytes, as_bucketed_seconds=bucketed, merged_seconds=merged, repeats=5
    )


def test_latency_and_bandwidth_from_two_ways_to_cut_the_same_bytes() -> None:
    cost = reduction(link(0.029, 0.011), buckets=10)
    assert cost is not None
    assert cost.latency == pytest.approx(0.002)
    assert cost.seconds(10 * MIB) == pytest.approx(0.011)
    assert reduction(link(0.011, 0.011), buckets=1) is None
    assert reduction(link(0.010, 0.011), buckets=10) is None


def test_small_buckets_hide_what_large_ones_expose() -> None:
    """Four pieces of 1 MiB, ready every 10 ms; a piece takes 5 ms to reduce and next to no
    latency."""
    sizes, ready = [MIB] * 4, [0.0, 0.01, 0.02, 0.03]
    cost = Reduction(1e-9, 0.005 / MIB)
    assert exposed_seconds(sizes, ready, MIB, cost) == pytest.approx(0.005)
    # The first bucket is always of 1 MiB; the rest waits for the last piece.
    assert exposed_seconds(sizes, ready, 100 * MIB, cost) == pytest.approx(0.015)


def test_latency_makes_small_buckets_slow() -> None:
    """All ready at once: the sum of latencies is exposed."""
    sizes, ready = [MIB] * 4, [0.0] * 4
    cost = Reduction(0.01, 1e-12)
    assert exposed_seconds(sizes, ready, MIB, cost) == pytest.approx(0.04, rel=1e-3)
    assert exposed_seconds(sizes, ready, 100 * MIB, cost) == pytest.approx(0.02, rel=1e-3)


@pytest.mark.parametrize(
    ("bucketed", "merged", "payload_mib", "buckets"),
    [
        (0.011, 0.011, 10, 10),  # no latency
        (0.022, 0.011, 10, 2),  # nothing but latency
        (0.030, 0.011, 60, 4),  # three pieces would take more than they took
    ],
)
def test_times_that_no_latency_and_bandwidth_explain_predict_nothing(
    bucketed: float, merged: float, payload_mib: int, buckets: int
) -> None:
    """A bucket that costs nothing, or less than nothing, would make the smallest ones the best."""
    assert reduction(link(bucketed, merged, payload_mib * MIB), buckets) is None


def test_the_link_is_busy_from_the_first_bucket_on() -> None:
    """Four pieces of 1 MiB, ready every 10 ms; each takes 20 ms to reduce."""
    sizes, ready = [MIB] * 4, [0.0, 0.01, 0.02, 0.03]
    cost = Reduction(1e-9, 0.02 / MIB)
    assert exposed_seconds(sizes, ready, MIB, cost) == pytest.approx(0.05)


@pytest.mark.parametrize(("cap", "buckets"), [(10, 4), (11, 2), (20, 2), (30, 2), (31, 1), (99, 1)])
def test_a_bucket_is_complete_once_it_holds_its_size(cap: float, buckets: int) -> None:
    """Four pieces of 10 bytes that are ready at once; a byte takes a second, a bucket 100 more."""
    exposed = exposed_seconds([10] * 4, [0.0] * 4, cap, Reduction(100.0, 1.0))
    assert exposed == 40 + 100 * buckets
