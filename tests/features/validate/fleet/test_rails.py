"""Which rail is slow between all nodes: named where it is, and no sound one."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Interface
from itertools import combinations

import numpy as np
import pytest

from torchscale.features.validate.fleet.rails import common_networks, slow_rails, usual_networks
from torchscale.schema.node.fleet import MeasuredPair, Pairwise, PairwiseStatus

Pair = tuple[int, int]


def rail(
    number: int | None,
    nodes: int,
    seed: int,
    *,
    factor: float = 1.0,
    slow: Mapping[Pair, float] | None = None,
) -> Pairwise:
    """All pairs on one rail: 10 ms with 2 % of noise, ``factor`` times as long, some pairs longer
    still."""
    noise = np.random.default_rng(seed)
    times = {
        pair: 0.010 * factor * (slow or {}).get(pair, 1.0) * np.exp(noise.normal(0, 0.02, 5))
        for pair in combinations(range(nodes), 2)
    }
    return Pairwise(
        backend="nccl",
        message_bytes=4,
        rail=number,
        status=PairwiseStatus.NONE,
        verdict="",
        pairs=tuple(
            MeasuredPair(nodes=pair, seconds=tuple(seconds.tolist()))
            for pair, seconds in times.items()
        ),
    )


@pytest.mark.parametrize("nodes", [2, 3, 8])
def test_a_rail_that_is_slow_between_all_nodes_is_named(nodes: int) -> None:
    rails = [rail(it, nodes, it, factor=1.4 if it == 5 else 1.0) for it in range(8)]
    (slow,) = slow_rails(rails)
    assert slow.rail == 5
    assert slow.share == pytest.approx(0.4, abs=0.05)


def test_several_are_listed_the_slowest_first() -> None:
    factors = {2: 1.3, 6: 1.8}
    rails = [rail(it, 4, it, factor=factors.get(it, 1.0)) for it in range(8)]
    assert [slow.rail for slow in slow_rails(rails)] == [6, 2]


@pytest.mark.parametrize("nodes", [2, 4])
def test_equal_rails_are_not_blamed(nodes: int) -> None:
    blamed = 0
    for seed in range(200):
        rails = [rail(it, nodes, 100 * seed + it) for it in range(8)]
        blamed += bool(slow_rails(rails))
    assert blamed <= 4  # one percent of the fleets, and fewer below a tenth of slowness


def test_noise_is_not_taken_for_a_slow_rail() -> None:
    noisy = rail(3, 2, 1).model_copy(
        update={"pairs": (MeasuredPair(nodes=(0, 1), seconds=(0.009, 0.012, 0.03, 0.002, 0.013)),)}
    )
    assert slow_rails([*(rail(it, 2, it) for it in range(3)), noisy]) == ()


def test_a_slow_link_of_a_rail_is_not_the_rails() -> None:
    rails = [rail(it, 4, it, slow={(0, 1): 2.0} if it == 1 else {}) for it in range(4)]
    assert slow_rails(rails) == ()


def test_less_than_a_tenth_is_the_place_and_no_fault() -> None:
    assert slow_rails([rail(it, 8, it, factor=1.06 if it == 3 else 1.0) for it in range(8)]) == ()


def test_two_rails_and_none_are_not_told_apart() -> None:
    assert slow_rails([rail(0, 4, 0), rail(1, 4, 1, factor=2.0)]) == ()
    assert slow_rails([rail(None, 4, 0)]) == ()
    assert slow_rails([]) == ()


def test_rails_that_failed_are_left_out() -> None:
    failed = rail(3, 4, 3).model_copy(update={"pairs": ()})
    rails = [*(rail(it, 4, it, factor=1.5 if it == 1 else 1.0) for it in range(3)), failed]
    assert [slow.rail for slow in slow_rails(rails)] == [1]


def interfaces(*texts: str) -> list[IPv4Interface]:
    return [IPv4Interface(text) for text in texts]


def test_the_networks_of_all_nodes_are_their_rails_the_one_to_node_0_first() -> None:
    nodes = [interfaces(f"10.1.0.{it}/24", f"10.0.0.{it}/24", f"10.{it}.9.1/24") for it in (5, 6)]
    assert common_networks(nodes, "10.1.0.5") == ("10.1.0.0/24", "10.0.0.0/24")
    assert common_networks(nodes, "10.0.0.5") == ("10.0.0.0/24", "10.1.0.0/24")


def test_a_network_that_each_node_has_of_its_own_joins_none_of_them() -> None:
    """Docker's bridge has the same address on every host."""
    nodes = [interfaces(f"10.0.0.{it}/24", "172.17.0.1/16") for it in range(1, 4)]
    assert common_networks(nodes, "10.0.0.1") == ("10.0.0.0/24",)


def test_a_network_that_a_node_is_not_in_is_no_rail() -> None:
    nodes = [interfaces("10.0.0.1/24", "10.1.0.1/24"), interfaces("10.0.0.2/24")]
    assert common_networks(nodes, "10.0.0.1") == ("10.0.0.0/24",)


def test_two_interfaces_in_one_network_are_one_rail() -> None:
    nodes = [interfaces(f"10.0.0.{it}/24", f"10.0.0.{100 + it}/24") for it in (1, 2)]
    assert common_networks(nodes, "10.0.0.1") == ("10.0.0.0/24",)


def test_a_node_without_a_network_of_most_others_lacks_it() -> None:
    addresses = {
        rank: interfaces(f"10.0.0.{rank}/24", f"10.1.0.{rank}/24", "172.17.0.1/16")
        for rank in range(1, 5)
    }
    addresses[3] = interfaces("10.0.0.3/24", "192.168.7.3/24")
    networks = usual_networks(addresses)
    assert networks[1] == ("10.0.0.0/24", "10.1.0.0/24")
    assert networks[3] == ("10.0.0.0/24",)


def test_a_network_of_half_of_the_nodes_is_not_missing_on_the_others() -> None:
    addresses = {rank: interfaces(f"10.0.0.{rank}/24") for rank in range(4)}
    for rank in (0, 1):
        addresses[rank] += interfaces(f"10.1.0.{rank}/24")
    assert set(usual_networks(addresses).values()) == {("10.0.0.0/24",)}
    assert usual_networks({}) == {}
