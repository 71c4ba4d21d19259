"""The law: GPU-seconds per sample as compute plus what GPUs, links and nodes add, with few
parameters.

With n GPUs on k nodes of l GPUs each, relative to the cost at the largest measured count::

    cost(n) = compute
            + ring within a node      · (l - 1) / l           bytes ÷ bandwidth of a ring all-reduce over l GPUs
            + latency within a node   · log2(l)
            + shared host             · (l - 1)               loaders, memory and PCIe that GPUs of a node share
            + network                 · (n - 1) / n, if k > 1  bytes ÷ bandwidth of a flat ring that crosses nodes
            + latency between nodes   · log2(k)               of a tree; contention in the network
            + latency of a ring       · (k - 1)               of gloo, where it was measured
            + stragglers              · E[max of n]           Blom's approximation, of standard normal rank times

A flat ring sends 2(n - 1)/n of the bytes over every link, however many nodes there are: the second
node costs much, the next ones little. Two or three counts cannot determine so many parameters, so
each has a prior: the fit is the posterior mean of a linear Gaussian model (ridge regression towards
the priors), which is also an average over the laws that the parameters span. Where the data say
nothing the prior decides, and its spread widens the interval.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from torchscale.features.decide.forecast.series import MeasuredCount, latency_between_nodes

Vector = NDArray[np.float64]

LOSS_PER_LOCAL_DOUBLING = 0.5
"""Standard deviation of what another doubling of the GPUs of a node adds to the loss measured so
far, as a share of it: once communication is exposed, or loaders are at their limit, each doubling
may add as much again (a hinge)."""
LOSS_PER_NODE_DOUBLING = 0.1
"""The same for nodes. Less: a flat ring sends nearly the same bytes over a link for any number of
nodes."""


class Term(Enum):
    """A term of the law with the mean and standard deviation of its prior, as shares of the cost at
    the largest measured count. Round values, whose reasons are in ``docs/predict.md``."""

    COMPUTE = (1.0, 1.0)
    RING_IN_NODE = (0.0, 0.05)
    LATENCY_IN_NODE = (0.01, 0.02)
    SHARED_HOST = (0.0, 0.015)
    NETWORK = (0.02, 0.3)
    LATENCY_BETWEEN_NODES = (0.025, 0.03)
    LATENCY_OF_RING = (0.0, 0.0)
    STRAGGLERS = (0.005, 0.005)


_SPREAD_ERROR = 0.5
"""Standard deviation of a measured spread, as a share of it: part of the waiting is for a lasting
straggler, and grows less with the number of ranks than waiting by chance."""
_SMALLEST_SPREAD = 0.002
"""The least standard deviation of a measured spread: ranks that never waited may do so on other
nodes."""
_LATENCY_ERROR = 0.5
"""Standard deviation of a measured latency between nodes, as a share of it: what of a step's
communication is exposed need not be made up of latency and bytes as all of it is, and latency may
grow as a ring's or as a tree's."""


def expected_maximum(count: float) -> float:
    """Expected maximum of ``count`` standard normal values: 0 for one, 1.43 for 8, 2.34 for 64,
    3.23 for 1,024 (Blom 1958)."""
    from scipy.special import ndtri  # noqa: PLC0415 - 0.2 s to import, and only predictions need it

    if count <= 1:
        return 0.0
    return float(ndtri((count - 0.375) / (count + 0.25)))


def features(gpus: float, nodes: float) -> Vector:
    """What each :class:`Term` is multiplied by at a count; shape (8,)."""
    local = gpus / nodes
    return np.array(
        [
            1.0,
            (local - 1) / local,
            math.log2(local),
            local - 1,
            (gpus - 1) / gpus if nodes > 1 else 0.0,
            math.log2(nodes),
            nodes - 1,
            expected_maximum(gpus),
        ]
    )


@dataclass(frozen=True)
class Fit:
    """A law fitted to the points of a series.

    Attributes:
        points: What it was fitted to, smallest count first.
        mean: Posterior mean of each term, shape (8,), as shares of ``scale``.
        covariance: Covariance of the terms, shape (8, 8).
        scale: GPU-seconds per sample at the largest measured count.
    """

    points: tuple[MeasuredCount, ...]
    mean: Vector
    covariance: Vector
    scale: float

    def cost(self, gpus: int, nodes: int) -> float:
        """GPU-seconds per sample at a count."""
        # The terms are costs; a fit of falling costs may still point below what any measured count
        # took.
        least = 0.5 * min(point.cost for point in self.points)
        return max(float(features(gpus, nodes) @ self.mean) * self.scale, least)

    def throughput(self, gpus: int, nodes: int) -> float:
        """Samples per second of all GPUs."""
        return gpus / self.cost(gpus, nodes)

    def deviation(self, gpus: int, nodes: int) -> float:
        """Standard deviation of the logarithm of a throughput measured there: of what the law adds
        to the nearest measured count, of a loss that goes on growing, and of the noise at both
        counts. It grows with the extrapolated part."""
        nearest = min(self.points, key=lambda point: abs(math.log(gpus / point.gpus)))
        added = features(gpus, nodes) - features(nearest.gpus, nearest.nodes)
        variance = float(added @ self.covariance @ added) + 2 * nearest.noise**2
        of_terms = math.sqrt(variance) * self.scale / self.cost(gpus, nodes)
        in_node = (
            self.loss * LOSS_PER_LOCAL_DOUBLING * max(math.log2(gpus / nodes / nearest.local), 0.0)
        )
        of_nodes = self.loss * LOSS_PER_NODE_DOUBLING * max(math.log2(nodes / nearest.nodes), 0.0)
        return math.sqrt(of_terms**2 + in_node**2 + of_nodes**2)

    @property
    def loss(self) -> float:
        """The dearest measured count over the cheapest, minus 1: how much scaling has cost so
        far."""
        costs = [point.cost for point in self.points]
        return max(costs) / min(costs) - 1


def fit_law(points: Sequence[MeasuredCount]) -> Fit:
    """The posterior of the law's terms given the points.

    Args:
        points: Measured points, at least one, smallest count first.
    """
    scale = points[-1].cost
    expected, deviation = _prior(points)
    costs = np.array([point.cost / scale for point in points])
    design = np.array([features(point.gpus, point.nodes) for point in points])
    noise = np.diag([(point.noise * cost) ** 2 for point, cost in zip(points, costs, strict=True)])
    prior = np.diag(deviation**2)
    gain = np.linalg.solve(design @ prior @ design.T + noise, design @ prior).T
    mean = expected + gain @ (costs - design @ expected)
    return Fit(tuple(points), mean, prior - gain @ design @ prior, scale)


def _prior(points: Sequence[MeasuredCount]) -> tuple[Vector, Vector]:
    """Mean and standard deviation of each term: those of :class:`Term`, or what was measured beside
    throughput."""
    measured = (
        {term: term.value for term in Term} | _spread(points) | _exposed_between_nodes(points)
    )
    mean, deviation = np.array([measured[term] for term in Term]).T
    return mean, deviation


def _spread(points: Sequence[MeasuredCount]) -> dict[Term, tuple[float, float]]:
    """Waiting for stragglers says how much the times of ranks vary: a share w of a step at n ranks
    is a standard deviation of w ÷ E[max of n]."""
    spreads = [
        max(point.straggler_share, 0.0) / expected_maximum(point.gpus)
        for point in points
        if point.straggler_share is not None and point.gpus > 1
    ]
    if not spreads:
        return {}
    spread = statistics.median(spreads)
    return {Term.STRAGGLERS: (spread, max(_SPREAD_ERROR * spread, _SMALLEST_SPREAD))}


def _exposed_between_nodes(points: Sequence[MeasuredCount]) -> dict[Term, tuple[float, float]]:
    """The exposed gradient sync of the largest count over nodes, divided into bytes, whose time
    hardly grows with the number of nodes, and latency, whose time does; nothing where that was not
    measured."""
    measured = latency_between_nodes(points)
    if measured is None:
        return {}
    point, latency = measured
    multiples = dict(zip(Term, features(point.gpus, point.nodes).tolist(), strict=True))
    exposed = (point.exposed_share or 0.0) * point.cost / points[-1].cost
    term = Term.LATENCY_BETWEEN_NODES
    if latency.of_ring:
        term = Term.LATENCY_OF_RING
    of_bytes = exposed * (1 - latency.share) / multiples[Term.NETWORK]
    of_latency = exposed * latency.share / multiples[term]
    expected, deviation = term.value
    return {
        Term.NETWORK: (of_bytes, Term.NETWORK.value[1]),
        term: (max(of_latency, expected), max(_LATENCY_ERROR * of_latency, deviation)),
    }
