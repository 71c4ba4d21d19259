"""Measurements of one workload at several counts of GPUs: what a prediction rests on."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from torchscale.analysis.stats.levels import scatter

DEFAULT_NOISE = 0.01
"""Standard deviation of a launch's throughput, as a share, where a count has fewer than three
launches: healthy machines repeat one test within 0.1 to 1.4 %."""
SMALLEST_NOISE = 0.002
"""Three launches agree better than this by chance alone, and clocks of GPUs vary by as much."""
_FEWEST_FOR_SPREAD = 3
_OF_MEDIAN = math.sqrt(math.pi / 2)
"""Standard error of a median over that of a mean, of normal values."""


@dataclass(frozen=True)
class Latency:
    """What the time of a step's collectives consists of, with nothing else under way.

    Attributes:
        share: Share of latency; the rest is bytes ÷ bandwidth. 0 to 1.
        of_ring: Whether it grows with the number of nodes, as of a ring, or with its logarithm, as
            of a tree.
    """

    share: float
    of_ring: bool = False


@dataclass(frozen=True)
class MeasuredCount:
    """Throughput at one count.

    Attributes:
        gpus: All GPUs.
        nodes: Number of nodes.
        launches: Samples or tokens per second of all GPUs, one for each launch, all positive.
        work: Samples or tokens of one step over all GPUs; ``None`` where not known.
        straggler_share: Share of a step that ranks wait for later ones, mean over ranks; ``None``
            where not measured.
        exposed_share: Share of a step that gradient sync takes once all ranks have arrived and no
            compute hides it; ``None`` where not measured.
        latency: Latency of the gradients' all-reduces; ``None`` where not measured.
    """

    gpus: int
    nodes: int
    launches: tuple[float, ...]
    work: float | None = None
    straggler_share: float | None = None
    exposed_share: float | None = None
    latency: Latency | None = None

    @property
    def throughput(self) -> float:
        """The median over launches, which one bad launch of three or more does not move."""
        return statistics.median(self.launches)

    @property
    def cost(self) -> float:
        """GPU-seconds per sample or token."""
        return self.gpus / self.throughput

    @property
    def local(self) -> float:
        """GPUs on a node, on average."""
        return self.gpus / self.nodes

    @property
    def noise(self) -> float:
        """Relative standard error of :attr:`throughput`; measured with three launches or more, else
        :data:`DEFAULT_NOISE`."""
        if len(self.launches) < _FEWEST_FOR_SPREAD:
            return DEFAULT_NOISE
        logs = np.log(self.launches)
        deviation = float(scatter(logs - np.median(logs)))
        return max(deviation / math.sqrt(len(logs)), SMALLEST_NOISE)

    @property
    def error(self) -> float:
        """Relative standard error of :attr:`throughput` with every launch in it, the bad one too:
        for claims that launches contradict each other. Never below :attr:`noise`."""
        if len(self.launches) < 2:
            return self.noise
        deviation = float(np.std(np.log(self.launches), ddof=1))
        return max(self.noise, _OF_MEDIAN * deviation / math.sqrt(len(self.launches)))


@dataclass(frozen=True)
class MeasuredSeries:
    """One workload with the same work per GPU at every count.

    Attributes:
        name: What it is; empty where a source holds one series.
        points: Points by count, smallest first.
        gpus_per_node: GPUs of a full node, to place counts that were not measured.
        unit: Unit of throughput.
        link: Catalogue name of the network between nodes; ``None`` where not known.
    """

    name: str
    points: tuple[MeasuredCount, ...]
    gpus_per_node: int
    unit: str = "samples/s"
    link: str | None = None

    def nodes_of(self, gpus: int) -> int:
        """Nodes that a count takes: as measured, else full nodes."""
        return next(
            (point.nodes for point in self.points if point.gpus == gpus),
            -(-gpus // self.gpus_per_node),
        )


def latency_between_nodes(points: Sequence[MeasuredCount]) -> tuple[MeasuredCount, Latency] | None:
    """The largest count over several nodes of which both the exposed gradient sync and its latency
    were measured."""
    for point in reversed(points):
        if point.nodes > 1 and point.exposed_share is not None and point.latency is not None:
            return point, point.latency
    return None


def make_series(
    name: str,
    points: Iterable[MeasuredCount],
    *,
    gpus_per_node: int | None = None,
    unit: str = "samples/s",
    link: str | None = None,
) -> MeasuredSeries:
    """Sorts the points; without ``gpus_per_node`` a node holds as many GPUs as the fullest measured
    one."""
    ordered = tuple(sorted(points, key=lambda point: (point.gpus, point.nodes)))
    fullest = max(math.ceil(point.local) for point in ordered)
    return MeasuredSeries(name, ordered, gpus_per_node or fullest, unit, link)
