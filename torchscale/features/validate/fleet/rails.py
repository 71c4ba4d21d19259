"""What rails nodes have, and which of them is slow between all nodes, from the times of the same pairs
of nodes on every rail. Pure.

A rail is the GPUs of one local index with their network cards and the switches between them. What
slows one node or one link of a rail stands out among the pairs of that rail
(:mod:`torchscale.features.validate.fleet.pairwise`); what slows all of them does not, and stands out among the rails.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Interface

from torchscale.analysis.stats.series import student_t_quantile
from torchscale.features.validate.fleet.pair_judgement import SLOW_SHARE
from torchscale.features.validate.fleet.pair_regression import FAMILY_ERROR
from torchscale.schema.node.fleet import Pairwise, SlowRail

MIN_RAILS = 3
"""Of two rails, it cannot be told whether one is slow or the other one fast."""
_MEDIAN_VARIANCE = math.pi / 2
"""Variance of the median of normal values against their mean's."""
_RAIL_SPREAD = 0.01
"""Spread between sound rails (standard deviation of the logarithm) that is assumed beside the noise
of the repeats, as for links."""

_Pair = tuple[int, int]


@dataclass(frozen=True)
class Rail:
    """What takes part on every node: over NCCL a GPU with the network card next to it, over gloo an
    interface.

    Attributes:
        gpu: Local index.
        network: Of the interface; empty for the one that leads to node 0.
    """

    gpu: int = 0
    network: str = ""


def common_networks(addresses: Sequence[Sequence[IPv4Interface]], first: str) -> tuple[str, ...]:
    """The networks that every node has an interface in, the one of ``first``, an address, before all
    others. A network in which two nodes have the same address does not join them: each has its own,
    as of containers or virtual machines.

    Args:
        addresses: Of each node.
        first: Node 0's, in the network that the nodes use to talk to it.
    """
    having = _members(addresses)
    found = [network for network, joined in having.items() if len(joined) == len(addresses)]
    leading = {network for network in found if first in map(str, (a.ip for a in having[network]))}
    return tuple(sorted(found, key=lambda network: (network not in leading, network)))


def usual_networks(
    addresses: Mapping[int, Sequence[IPv4Interface]],
) -> dict[int, tuple[str, ...]]:
    """For each node, those of its networks that more than half of the nodes are in: what a node
    lacks of them is a network card that is missing, down, or set up otherwise.

    Args:
        addresses: Of each node, by its rank.
    """
    having = _members(list(addresses.values()))
    usual = {network for network, joined in having.items() if 2 * len(joined) > len(addresses)}
    return {
        rank: tuple(sorted(usual & {str(each.network) for each in own}))
        for rank, own in addresses.items()
    }


def _members(addresses: Sequence[Sequence[IPv4Interface]]) -> dict[str, list[IPv4Interface]]:
    """Network → the address of each node that is in it, without networks in which two nodes have
    the same address."""
    having: dict[str, list[IPv4Interface]] = {}
    for own in addresses:
        for network, address in {str(each.network): each for each in own}.items():
            having.setdefault(network, []).append(address)
    return {
        network: joined for network, joined in having.items() if len(set(joined)) == len(joined)
    }


def slow_rails(rails: Sequence[Pairwise]) -> tuple[SlowRail, ...]:
    """Rails whose pairs take more than ``SLOW_SHARE`` more time than the median rail's, beyond the
    noise; the slowest first. Empty with fewer than :data:`MIN_RAILS` that have times of the same
    pairs."""
    times = {each.rail: _logs(each) for each in rails if each.rail is not None}
    times = {rail: logs for rail, logs in times.items() if logs}
    if len(times) < MIN_RAILS:
        return ()
    pairs = sorted(set.intersection(*(set(logs) for logs in times.values())))
    degrees = sum(len(logs[pair]) - 1 for logs in times.values() for pair in pairs)
    if not pairs or degrees < 1:
        return ()
    medians = {
        rail: [statistics.median(logs[pair]) for pair in pairs] for rail, logs in times.items()
    }
    usual = [statistics.median(column) for column in zip(*medians.values(), strict=True)]
    limit = max(
        math.log1p(SLOW_SHARE),
        student_t_quantile(1 - FAMILY_ERROR / len(times), degrees) * _error(times, pairs, degrees),
    )
    found = []
    for rail, values in medians.items():
        more = statistics.median(value - level for value, level in zip(values, usual, strict=True))
        if more > limit:
            found.append(SlowRail(rail=rail, share=math.expm1(more)))
    return tuple(sorted(found, key=lambda slow: -slow.share))


def _logs(pairwise: Pairwise) -> dict[_Pair, list[float]]:
    """Logarithms of the times of each pair that has any."""
    return {
        pair.nodes: [math.log(value) for value in pair.seconds]
        for pair in pairwise.pairs
        if pair.seconds
    }


def _error(
    times: Mapping[int, Mapping[_Pair, Sequence[float]]], pairs: Sequence[_Pair], degrees: int
) -> float:
    """Standard error of how much more time a rail takes: of the median over pairs of a median of
    repeats, against the median of the rails."""
    cells = [logs[pair] for logs in times.values() for pair in pairs]
    variance = sum((len(cell) - 1) * statistics.variance(cell) for cell in cells) / degrees
    repeats = min(len(cell) for cell in cells)
    of_a_cell = _MEDIAN_VARIANCE * variance / repeats
    against_others = 1 + _MEDIAN_VARIANCE / len(times)
    of_a_rail = _MEDIAN_VARIANCE * of_a_cell / len(pairs) * against_others
    return math.sqrt(of_a_rail + _RAIL_SPREAD**2)
