"""Slow parts among their peers, and false alarms."""

from __future__ import annotations

import math

import numpy as np
import pytest

from torchscale.features.validate.acceptance.peers import (
    FAMILY_ERROR,
    FEW_NODES,
    MIN_NODES,
    MIN_PEERS,
    NODE_SPREAD,
    node_limit,
    peer_limit,
)


def levels(
    rng: np.random.Generator, parts: int, slow: dict[int, float], spread: float
) -> list[float]:
    values = rng.normal(0, spread, parts)
    for place, share in slow.items():
        values[place] = math.log(1 - share)
    return list(values)


def test_few_parts_are_not_held_against_each_other() -> None:
    assert peer_limit([0.0] * (MIN_PEERS - 1), 10) is None


@pytest.mark.parametrize("parts", [8, 64, 1024])
def test_a_part_ten_percent_slower_is_found_and_no_other(parts: int) -> None:
    rng = np.random.default_rng(parts)
    found = peer_limit(levels(rng, parts, {3: 0.1}, 0.006), parts)
    assert found is not None
    assert found.low == (3,)
    assert found.median == pytest.approx(0, abs=0.01)
    assert found.limit > math.log(0.9)


def test_slow_parts_do_not_hide_each_other() -> None:
    rng = np.random.default_rng(5)
    found = peer_limit(levels(rng, 16, {2: 0.2, 7: 0.21, 11: 0.15}, 0.006), 16)
    assert found is not None
    assert set(found.low) == {2, 7, 11}


def test_where_half_of_the_parts_are_slow_nobody_is_named() -> None:
    found = peer_limit([0.0, 0.001, 0.002, -0.2, -0.201, -0.202], 6)
    assert found is not None
    assert found.low == ()


def test_a_fast_part_accuses_nobody() -> None:
    rng = np.random.default_rng(6)
    found = peer_limit([*levels(rng, 15, {}, 0.006), 0.5], 16)
    assert found is not None
    assert found.low == ()


def test_less_than_three_percent_is_never_low() -> None:
    found = peer_limit([*np.linspace(0, 1e-5, 31), math.log(0.972)], 32)
    assert found is not None
    assert found.low == ()


@pytest.mark.parametrize("parts", [5, 8, 24])
def test_equal_parts_are_accused_in_less_than_one_percent_of_fleets(parts: int) -> None:
    rng = np.random.default_rng(parts)
    figures, fleets = 8, 800
    accused = sum(
        any(
            found.low
            for found in (
                peer_limit(list(rng.normal(0, 0.015, parts)), figures * parts)
                for _ in range(figures)
            )
            if found is not None
        )
        for _ in range(fleets)
    )
    assert accused <= 0.01 * fleets


def test_three_nodes_are_not_held_against_each_other() -> None:
    assert node_limit([0.0] * (MIN_NODES - 1), 10, NODE_SPREAD) is None


@pytest.mark.parametrize("nodes", [4, 5, 7])
def test_one_of_a_few_nodes_is_found_from_the_spread_that_is_assumed(nodes: int) -> None:
    rng = np.random.default_rng(nodes)
    found = node_limit(levels(rng, nodes, {2: 0.15}, 0.006), 8 * nodes, NODE_SPREAD)
    assert found is not None
    assert found.low == (2,)
    assert found.spread == NODE_SPREAD
    # a tenth is the least that is called low, however equal the others are
    assert node_limit([0.0, 0.001, math.log(0.91), 0.002], 1, NODE_SPREAD).low == ()  # type: ignore[union-attr]


def test_few_nodes_that_differ_more_than_is_assumed_accuse_nobody_by_it() -> None:
    found = node_limit([0.0, 0.12, -0.12, math.log(0.8)], 32, NODE_SPREAD)
    assert found is not None
    assert found.spread > 5 * NODE_SPREAD
    assert found.low == ()


def test_from_eight_nodes_on_their_own_spread_counts() -> None:
    values = levels(np.random.default_rng(1), FEW_NODES, {3: 0.07}, 0.004)
    assert node_limit(values, 8, NODE_SPREAD) == peer_limit(values, 8)
    assert node_limit(values, 8, NODE_SPREAD).low == (3,)  # type: ignore[union-attr]


@pytest.mark.parametrize("nodes", [4, 7])
def test_a_few_equal_nodes_are_accused_as_seldom_as_is_promised(nodes: int) -> None:
    """Nodes that differ by as much as is assumed, which sound ones seldom do."""
    rng = np.random.default_rng(nodes)
    figures, fleets = 8, 4000
    accused = 0
    for _ in range(fleets):
        found = [
            node_limit(list(rng.normal(0, NODE_SPREAD, nodes)), figures * nodes, NODE_SPREAD)
            for _ in range(figures)
        ]
        accused += any(limit.low for limit in found if limit is not None)
    # the median of few normal values is nearly as certain as their mean, so it is seldom reached
    assert accused <= 3 * FAMILY_ERROR * fleets
