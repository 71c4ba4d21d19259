"""Moments of all ranks and what each of them follows: the graph that a replay evaluates."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.analysis.paired import ranges

Times = NDArray[np.float64]
"""Nanoseconds since the start of the earliest rank's window."""


class EdgeKind(IntEnum):
    """What the time of an edge is."""

    WORK = 0
    """Operators and kernels, and the short gaps between them."""
    HOST_GAP = 1
    """Host work between operators (CPU), or between calls that hand work to the device."""
    INPUT = 2
    """Waiting for the data loader."""
    PAUSE = 3
    """Garbage collection."""
    TRANSFER = 4
    """Communication after the last rank has arrived."""
    OTHER = 5
    """Delays that no edit changes: a thread that wakes up, a kernel that starts after its
    launch."""


class ReplayError(Exception):
    """The recordings cannot be replayed; the message says why."""


@dataclass(frozen=True)
class Edges:
    """Columns with a row an edge: the target happens no earlier than its source plus the sum of the
    parts.

    Attributes:
        source, target: Nodes.
        parts: Nanoseconds, a column a :class:`EdgeKind`.
        rank: Column of the rank whose time it is.
        step: Place of the step in the window; -1 before the first.
        segment: Number of collectives that the rank had reached in the step: what peers of equal
            work do alike.
        tie: Row of the collective whose transfer it is; -1 for other edges.
        launch: Whether it says only when the host had launched the work.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    parts: Times
    rank: NDArray[np.int64]
    step: NDArray[np.int64]
    segment: NDArray[np.int64]
    tie: NDArray[np.int64]
    launch: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.source)


@dataclass(frozen=True)
class EventGraph:
    """Moments and edges.

    Attributes:
        recorded: When each moment was recorded; of moments without a source also when they happen
            in a replay.
        edges: What each moment follows.
    """

    recorded: Times
    edges: Edges

    def times(self, weights: Times) -> Times:
        """When each moment happens.

        Args:
            weights: Nanoseconds, a row an edge and a column a variant; ``-inf`` takes an edge away.

        Returns:
            A row a moment and a column a variant.

        Raises:
            ReplayError: moments follow each other in a circle.
        """
        happens = np.repeat(self.recorded[:, None], weights.shape[1], axis=1)
        for targets, edges, sources, offsets in self._levels:
            reached = happens[sources] + weights[edges]
            if len(targets) < len(edges):
                reached = np.maximum.reduceat(reached, offsets, axis=0)
            happens[targets] = reached
        return happens

    @cached_property
    def _levels(
        self,
    ) -> list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]]:
        """Moments in an order in which each follows its sources: moments of one level, the edges
        into them, where these come from, and where the edges of each moment begin."""
        count = len(self.recorded)
        source, target = self.edges.source, self.edges.target
        missing = np.bincount(target, minlength=count)
        leaving = np.argsort(source, kind="stable")
        first = np.searchsorted(source[leaving], np.arange(count + 1))
        entering = np.argsort(target, kind="stable")
        begins = np.searchsorted(target[entering], np.arange(count + 1))
        ready = np.flatnonzero(missing == 0)
        done, levels = len(ready), []
        while len(ready):
            out = leaving[ranges(first[ready], first[ready + 1])]
            reached = target[out]
            np.subtract.at(missing, reached, 1)
            ready = np.unique(reached[missing[reached] == 0])
            if len(ready):
                lengths = begins[ready + 1] - begins[ready]
                edges = entering[ranges(begins[ready], begins[ready + 1])]
                levels.append((ready, edges, source[edges], np.cumsum(lengths) - lengths))
                done += len(ready)
        if done < count:
            raise ReplayError(
                "the recorded order of collectives contradicts itself: ranks would wait for each "
                "other in a circle"
            )
        return levels


class GraphBuilder:
    """Collects moments and edges."""

    def __init__(self) -> None:
        # Rows of numbers, one after the other: a list of tuples takes five times as much.
        self._recorded = array("d")
        self._edges = array("q")
        self._parts = array("d")

    def moment(self, recorded: float) -> int:
        """A new moment; returns its number."""
        self._recorded.append(float(recorded))
        return len(self._recorded) - 1

    def edge(
        self,
        source: int,
        target: int,
        parts: tuple[float, ...] | None = None,
        *,
        rank: int = -1,
        step: int = -1,
        segment: int = 0,
        tie: int = -1,
        launch: bool = False,
    ) -> None:
        """``target`` follows ``source`` by ``parts`` (:func:`only` makes them of one)."""
        self._edges.extend((source, target, rank, step, segment, tie, launch))
        self._parts.extend(_NOTHING if parts is None else parts)

    def recorded(self, moment: int) -> float:
        """When a moment was recorded."""
        return self._recorded[moment]

    def build(self) -> EventGraph:
        """The graph of all that was added."""
        table = np.array(self._edges, dtype=np.int64).reshape(-1, 7)
        edges = Edges(
            source=table[:, 0],
            target=table[:, 1],
            parts=np.array(self._parts, dtype=np.float64).reshape(-1, len(EdgeKind)),
            rank=table[:, 2],
            step=table[:, 3],
            segment=table[:, 4],
            tie=table[:, 5],
            launch=table[:, 6].astype(bool),
        )
        return EventGraph(np.array(self._recorded, dtype=np.float64), edges)


_NOTHING = (0.0,) * len(EdgeKind)


def only(part: EdgeKind, nanoseconds: float) -> tuple[float, ...]:
    """Time of one part, none below 0."""
    if nanoseconds <= 0:
        return _NOTHING
    return *_NOTHING[:part], float(nanoseconds), *_NOTHING[part + 1 :]


@dataclass(frozen=True)
class RankFrame:
    """Adds moments of one rank, on its own clock.

    Attributes:
        builder: Gets them.
        column: The rank's.
        shift: What to subtract from its times.
        begins, ends: Moments from which its tied operations can run and at which they end, by their
            place.
    """

    builder: GraphBuilder
    column: int
    shift: int
    begins: Mapping[int, int]
    ends: Mapping[int, int]

    def moment(self, time: float) -> int:
        """A moment at a time of the rank's clock."""
        return self.builder.moment(time - self.shift)

    def edge(
        self,
        source: int,
        target: int,
        parts: tuple[float, ...] | None = None,
        *,
        at: tuple[int, int] = (-1, 0),
        launch: bool = False,
    ) -> None:
        """An edge of the rank's own time, in the step and segment ``at``."""
        step, segment = at
        self.builder.edge(
            source, target, parts, rank=self.column, step=step, segment=segment, launch=launch
        )

    def lag(self, source: int, target: int) -> tuple[float, ...]:
        """What of the time between two recorded moments no edit changes."""
        return only(EdgeKind.OTHER, self.builder.recorded(target) - self.builder.recorded(source))

    def join(self, *sources: int) -> int:
        """A moment at which all of ``sources`` have happened."""
        moment = self.builder.moment(max(self.builder.recorded(source) for source in sources))
        for source in sources:
            self.edge(source, moment)
        return moment
