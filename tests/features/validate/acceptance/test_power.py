"""What a budget can tell."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.features.validate.acceptance.runs import a_run, baseline_of, noisy
from torchscale.features.validate.acceptance.judge import judge
from torchscale.features.validate.acceptance.power import predict_power, round_noise
from torchscale.schema.node.acceptance import FigureStatus, LimitKind

NODE = ("all-reduce", "node")


def test_noise_is_pooled_over_the_parts_of_a_figure() -> None:
    run = a_run(
        {
            ("compute fp32", "GPU 0"): (1.0, math.exp(0.02)),
            ("compute fp32", "GPU 1"): (1.0, math.exp(0.04)),
            ("training", "node"): (5.0, 5.0),
        }
    )
    found = round_noise(run, (0, 1))
    # variances of two values are half of their squared distance: 0.0002 and 0.0008
    assert found["compute fp32"] == pytest.approx(math.sqrt(0.0005))
    assert found["training"] == 0.0


def test_more_time_finds_less_and_never_less_than_the_loss_that_is_accepted() -> None:
    def loss(seconds: float) -> float:
        power = predict_power(seconds, 30.0, {"a": 0.02}, figures=10, peers=8, baseline_rounds=None)
        return power.by_limit[LimitKind.BASELINE]

    assert loss(300) > loss(1200) > loss(3600) > 0.05


def test_too_little_time_promises_nothing() -> None:
    power = predict_power(60.0, 30.0, {}, figures=10, peers=8, baseline_rounds=None)
    assert power.rounds == 2
    assert not power.by_limit
    assert not power.measured


def test_few_peers_promise_nothing_of_peers() -> None:
    power = predict_power(600.0, 30.0, {}, figures=10, peers=2, baseline_rounds=None)
    assert set(power.by_limit) == {LimitKind.BASELINE}


def test_the_predicted_loss_is_found_about_as_often_as_promised() -> None:
    rng = np.random.default_rng(3)
    rounds, noise, tests = 10, 0.02, 1
    power = predict_power(
        rounds * 30.0, 30.0, {"a": noise}, figures=tests, peers=0, baseline_rounds=None
    )
    factor = 1 - power.by_limit[LimitKind.BASELINE]
    found = 0
    for _ in range(400):
        baseline = baseline_of(a_run({NODE: noisy(rng, 1e9, rounds, noise)}))
        now = a_run({NODE: noisy(rng, factor * 1e9, rounds, noise)})
        found += judge(now, baseline, {})[0].status is FigureStatus.LOW
    assert 0.83 <= found / 400 <= 0.97


def test_a_few_nodes_find_a_tenth_at_the_best() -> None:
    def loss(nodes: int) -> float:
        power = predict_power(
            600.0, 30.0, {"a": 0.002}, figures=8 * nodes, peers=1, nodes=nodes, baseline_rounds=None
        )
        return power.by_limit[LimitKind.PEERS]

    assert 0.10 < loss(4) < 0.12
    assert loss(8) < loss(4)
    assert loss(64) < 0.05


def test_three_nodes_promise_nothing_of_each_other() -> None:
    power = predict_power(600.0, 30.0, {}, figures=10, peers=1, nodes=3, baseline_rounds=None)
    assert set(power.by_limit) == {LimitKind.BASELINE}
