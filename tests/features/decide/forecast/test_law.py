"""The law on series whose costs are known by construction."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from torchscale.features.decide.forecast.law import expected_maximum, features, fit_law
from torchscale.features.decide.forecast.series import (
    DEFAULT_NOISE,
    Latency,
    MeasuredCount,
    make_series,
)


def of_costs(*costs: tuple[int, int, float]) -> list[MeasuredCount]:
    """GPUs, nodes, GPU-seconds per sample."""
    return [MeasuredCount(gpus, nodes, (gpus / cost,)) for gpus, nodes, cost in costs]


@pytest.mark.parametrize(("count", "expected"), [(1, 0.0), (8, 1.424), (64, 2.344), (1024, 3.235)])
def test_the_expected_maximum_is_that_of_normal_values(count: int, expected: float) -> None:
    # Exact values by numerical integration: 1.4236 (8), 2.3437 (64), 3.2452 (1,024).
    assert expected_maximum(count) == pytest.approx(expected, abs=0.02)


def test_features_of_one_gpu_are_compute_alone() -> None:
    assert features(1, 1).tolist() == [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    of_four_nodes = features(32, 4)
    assert of_four_nodes[1] == pytest.approx(7 / 8)
    assert of_four_nodes[4] == pytest.approx(31 / 32)
    assert of_four_nodes[5] == 2.0
    assert of_four_nodes[6] == 3.0


def test_a_costly_first_step_to_two_nodes_is_not_repeated_at_four() -> None:
    """A flat ring sends 15/16 of the bytes over a link at 16 GPUs and 31/32 at 32."""
    fit = fit_law(of_costs((1, 1, 1.0), (8, 1, 1.05), (16, 2, 1.55)))
    assert 1.5 < fit.cost(32, 4) < 1.7
    assert fit.cost(32, 4) > fit.cost(16, 2) * 0.99


def over_nodes(
    local: int, nodes: int, *, latency: float, of_bytes: float, of_ring: bool
) -> MeasuredCount:
    """Latency and bytes are what each costs at two nodes, relative to compute; all of it is
    exposed."""
    gpus = local * nodes
    growth = nodes - 1 if of_ring else math.log2(nodes)
    carried = (gpus - 1) / gpus * 2 * local / (2 * local - 1) if nodes > 1 else 0.0
    exposed = latency * growth + of_bytes * carried
    cost = 1 + exposed
    share = Latency(latency * growth / exposed, of_ring) if nodes > 1 else None
    return MeasuredCount(
        gpus, nodes, (gpus / cost,) * 3, exposed_share=exposed / cost, latency=share
    )


@pytest.mark.parametrize("of_ring", [False, True])
@pytest.mark.parametrize("local", [1, 8])
@pytest.mark.parametrize(("latency", "of_bytes"), [(0.2, 0.02), (0.1, 0.1), (0.02, 0.2)])
def test_measured_latency_grows_with_nodes_where_bytes_do_not(
    local: int, latency: float, of_bytes: float, of_ring: bool
) -> None:
    points = [
        over_nodes(local, nodes, latency=latency, of_bytes=of_bytes, of_ring=of_ring)
        for nodes in (1, 2)
    ]
    fit = fit_law(points)
    for nodes in (4, 8):
        truth = over_nodes(local, nodes, latency=latency, of_bytes=of_bytes, of_ring=of_ring)
        assert fit.throughput(truth.gpus, nodes) == pytest.approx(truth.throughput, rel=0.05)


def test_latency_that_was_not_measured_is_taken_for_bytes() -> None:
    """Why it is measured: the same two points, and 12 % too much at four nodes."""
    points = [over_nodes(8, nodes, latency=0.2, of_bytes=0.02, of_ring=False) for nodes in (1, 2)]
    without = [replace(point, latency=None) for point in points]
    truth = over_nodes(8, 4, latency=0.2, of_bytes=0.02, of_ring=False).throughput
    assert fit_law(without).throughput(32, 4) > 1.1 * truth
    assert fit_law(points).throughput(32, 4) < 1.02 * truth


def test_latency_that_is_hidden_widens_nothing() -> None:
    points = [MeasuredCount(8, 1, (8.0,) * 3), MeasuredCount(16, 2, (16.0,) * 3, exposed_share=0.0)]
    hidden = [points[0], replace(points[1], latency=Latency(0.9))]
    assert fit_law(hidden).deviation(32, 4) == pytest.approx(
        fit_law(points).deviation(32, 4), rel=0.05
    )


def test_the_fit_goes_through_precise_points() -> None:
    points = [
        MeasuredCount(gpus, nodes, (gpus / cost,) * 3)
        for gpus, nodes, cost in ((8, 1, 1.0), (16, 2, 1.2), (32, 4, 1.24))
    ]
    fit = fit_law(points)
    for point in points:
        assert fit.throughput(point.gpus, point.nodes) == pytest.approx(point.throughput, rel=0.01)


def test_the_deviation_grows_with_the_extrapolated_part_and_with_the_loss() -> None:
    clean = fit_law(of_costs((8, 1, 1.0), (16, 2, 1.01)))
    lossy = fit_law(of_costs((8, 1, 1.0), (16, 2, 1.5)))
    deviations = [clean.deviation(8 * nodes, nodes) for nodes in (4, 8, 16, 32)]
    assert deviations == sorted(deviations)
    assert deviations[-1] > 1.5 * deviations[0]
    assert lossy.deviation(32, 4) > clean.deviation(32, 4)
    assert clean.deviation(16, 2) < clean.deviation(32, 4)


def test_scale_and_unit_of_throughput_do_not_matter() -> None:
    small = fit_law(of_costs((8, 1, 1.0), (16, 2, 1.2)))
    large = fit_law(of_costs((8, 1, 1e-6), (16, 2, 1.2e-6)))
    assert large.throughput(64, 8) == pytest.approx(small.throughput(64, 8) * 1e6)
    assert large.deviation(64, 8) == pytest.approx(small.deviation(64, 8))


def test_a_bad_launch_of_three_does_not_move_a_point() -> None:
    good = MeasuredCount(8, 1, (100.0, 101.0, 99.5))
    bad = MeasuredCount(8, 1, (100.0, 101.0, 20.0))
    assert bad.throughput == good.throughput == 100.0
    assert MeasuredCount(8, 1, (100.0,)).noise == DEFAULT_NOISE
    assert good.noise < DEFAULT_NOISE


def test_a_series_knows_the_nodes_of_counts_that_were_not_measured() -> None:
    series = make_series("", of_costs((16, 2, 1.0), (8, 1, 1.0)))
    assert [point.gpus for point in series.points] == [8, 16]
    assert [series.nodes_of(gpus) for gpus in (4, 8, 12, 16, 64)] == [1, 1, 2, 2, 8]
    assert make_series("", of_costs((2, 2, 1.0), (1, 1, 1.0))).nodes_of(4) == 4


def test_costs_that_fall_predict_no_negative_cost() -> None:
    fit = fit_law(of_costs((1, 1, 1.0), (2, 1, 0.92), (4, 1, 0.85), (8, 1, 0.78)))
    assert math.isfinite(fit.throughput(128, 16))
    assert fit.cost(128, 16) > 0


def test_measured_waiting_for_stragglers_replaces_its_prior() -> None:
    def predicted(share: float | None) -> float:
        points = [
            MeasuredCount(n, k, (float(n),) * 3, straggler_share=share)
            for n, k in ((8, 1), (16, 2))
        ]
        return fit_law(points).cost(256, 32)

    assert predicted(0.05) > predicted(None) > predicted(0.0)
