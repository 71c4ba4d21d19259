"""Gradient buckets of a replay: all-reduces of a step, and which of them can become one."""

from __future__ import annotations

import itertools
from collections import defaultdict
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.replay.graph import EdgeKind, Times
from torchscale.features.trace.replay.replay import Replay


class GradientBuckets:
    """The all-reduces of a replay."""

    def __init__(self, replay: Replay) -> None:
        self._replay, self._edges = replay, replay.graph.edges

    def joined(self, recorded: Times, most_bytes: float, latency: float) -> Times | None:
        """Edge times where neighbours that together hold at most ``most_bytes`` are one; ``None``
        where none are joined.

        Args:
            recorded: Edge times as they are.
            most_bytes: The most that one may hold.
            latency: Nanoseconds of an all-reduce of no bytes, which each that is joined saves.
        """
        weights: Times = recorded.copy()
        payload = self._replay.ties.payload_bytes.astype(np.float64)
        for ties in self._of_steps:
            for first, last in _joined(payload[ties], self._may_join[ties], most_bytes):
                edges = np.stack([self._edges_of(tie) for tie in ties[first : last + 1].tolist()])
                taken = self._edges.parts[edges, EdgeKind.TRANSFER]
                ran = _together(self._replay.graph.recorded[self._edges.target[edges]], taken)
                weights[edges] -= taken
                weights[edges[-1]] += np.maximum(ran - latency * (last - first), taken.max(axis=0))
        return None if np.array_equal(weights, recorded) else weights

    @cached_property
    def largest_bytes(self) -> float:
        """The largest payload of an all-reduce."""
        ties = self._replay.ties
        sizes = ties.payload_bytes[ties.are(("all_reduce",))]
        if not len(sizes):
            return 0.0
        return float(sizes.max())

    @cached_property
    def _of_steps(self) -> list[NDArray[np.int64]]:
        """All-reduces of each step, in their order."""
        of_step: dict[int, list[int]] = defaultdict(list)
        for number in np.flatnonzero(self._replay.ties.are(("all_reduce",))).tolist():
            of_step[int(self._replay.tie_steps[number])].append(number)
        return [np.array(numbers, dtype=np.int64) for numbers in of_step.values()]

    @cached_property
    def _may_join(self) -> NDArray[np.bool_]:
        """Whether no rank does anything between the end of each tie and the beginning of the next
        of its operation and step that follows that end: what waits for an all-reduce before the
        next is no gradient bucket's."""
        graph = self._replay.graph
        after = np.full(len(graph.recorded), np.inf)
        np.minimum.at(after, self._edges.source, graph.recorded[self._edges.target])
        allowed = np.zeros(len(self._replay.ties), dtype=bool)
        for ties in self._of_steps:
            for earlier, later in itertools.pairwise(ties.tolist()):
                ends = self._edges.target[self._edges_of(earlier)]
                begins = self._replay.tie_begins[self._replay.ties.members_of(later)]
                allowed[earlier] = bool((after[ends] >= graph.recorded[begins]).all())
        return allowed

    def _edges_of(self, tie: int) -> NDArray[np.int64]:
        """Transfers of a tie, by member."""
        return np.asarray(self._tie_edges[self._replay.ties.members_of(tie)])

    @cached_property
    def _tie_edges(self) -> NDArray[np.int64]:
        return np.flatnonzero(self._edges.tie >= 0)


def _joined(
    sizes: NDArray[np.float64], may_join: NDArray[np.bool_], most_bytes: float
) -> list[tuple[int, int]]:
    """First and last of two or more neighbours that may be joined and hold at most ``most_bytes``
    together."""
    parts: list[tuple[int, int]] = []
    first, held = 0, 0.0
    for place, size in enumerate(sizes.tolist()):
        if place > first and (held + size > most_bytes or not may_join[place - 1]):
            parts.append((first, place - 1))
            first, held = place, 0.0
        held += size
    parts.append((first, len(sizes) - 1))
    return [(begin, end) for begin, end in parts if end > begin]


def _together(ends: Times, lengths: Times) -> Times:
    """Nanoseconds in which at least one of several transfers ran: rows are transfers, columns
    ranks."""
    order = np.argsort(ends - lengths, axis=0, kind="stable")
    end = np.take_along_axis(ends, order, axis=0)
    start = np.take_along_axis(ends - lengths, order, axis=0)
    covered = np.maximum.accumulate(end, axis=0)
    until = np.concatenate([start[:1], covered[:-1]])
    return np.asarray(np.maximum(0.0, end - np.maximum(start, until)).sum(axis=0))
