"""Groups of ranks that reduce or gather together, by names or by moments of what was recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from torchscale.features.trace.analysis.clocks import SAME_HOST_SPREAD_NS
from torchscale.features.trace.analysis.clusters import close_groups
from torchscale.features.trace.span import SEND_RECV, RankTrace

_DISTANCE_RATIO = 10.0
"""Ranks are grouped by when their collectives end only where ends in different groups are so many
times as far apart as ends within a group; what lies between could be either."""
_GRADIENT_OPS = ("all_reduce", "reduce_scatter", "all_gather")
"""What copies of a stage do together."""
Columns = tuple[int, ...]


def groups_by_names(
    ranks: Sequence[RankTrace], partners: dict[int, set[int]] | None
) -> tuple[Columns, ...] | None:
    """Ranks that reduce or gather together, in groups of one shape that every rank is in one of
    (the groups along a dimension of a mesh). Groups within which ranks send and receive join
    stages, as those of all ranks do, and are left out; so are those of some ranks only, as of the
    first and the last stage, which share an embedding."""
    members: dict[str, set[int]] = defaultdict(set)
    sending: dict[str, set[int]] = defaultdict(set)
    for column, rank in enumerate(ranks):
        collectives = rank.collectives
        pairs = np.stack([collectives.op, collectives.group], axis=1)
        for op, group in np.unique(pairs, axis=0).tolist():
            if collectives.ops[op] == SEND_RECV:
                sending[collectives.groups[group]].add(column)
            elif collectives.ops[op] in _GRADIENT_OPS:
                members[collectives.groups[group]].add(column)
    crossing = _Crossing(columns for name, columns in sending.items() if name)
    for column, others in (partners or {}).items():
        crossing.add({column, other} for other in others)
    by_shape: dict[Columns, set[frozenset[int]]] = defaultdict(set)
    for name, columns in members.items():
        if name and 1 < len(columns) < len(ranks) and not crossing.lies_in(columns):
            by_shape[tuple(column - min(columns) for column in sorted(columns))].add(
                frozenset(columns)
            )
    links = [
        (min(group), set(group))
        for groups in by_shape.values()
        if sorted(column for group in groups for column in group) == list(range(len(ranks)))
        for group in groups
    ]
    return equal_groups(connected_components(range(len(ranks)), links))


class _Crossing:
    """Sets of columns that send to each other, by their lowest."""

    def __init__(self, sets: Iterable[set[int]]) -> None:
        self._by_lowest: dict[int, list[set[int]]] = defaultdict(list)
        self.add(sets)

    def add(self, sets: Iterable[set[int]]) -> None:
        """Further ones; a set of one column crosses nothing."""
        for columns in sets:
            if len(columns) > 1:
                self._by_lowest[min(columns)].append(columns)

    def lies_in(self, columns: set[int]) -> bool:
        """Whether one of them lies in ``columns``."""
        return any(
            crossing <= columns
            for column in columns
            for crossing in self._by_lowest.get(column, ())
        )


def groups_by_ends(ranks: Sequence[RankTrace]) -> tuple[Columns, ...] | None:
    """Ranks of one clock whose collectives end together, where the recording names no groups. On
    devices an all-reduce is over for all of its ranks within 100 µs; those of other stages end at
    other times, or are of another number."""
    if len({rank.host for rank in ranks}) > 1 or not all(rank.on_device for rank in ranks):
        return None
    ends = [_gradient_ends(rank) for rank in ranks]
    by_count: dict[int, list[int]] = defaultdict(list)
    for column, series in enumerate(ends):
        by_count[len(series)].append(column)
    if 0 in by_count:
        return None
    groups: list[Columns] = []
    for columns in by_count.values():
        rows = np.array([ends[column] for column in columns])
        close = close_groups(rows, SAME_HOST_SPREAD_NS, _DISTANCE_RATIO)
        if close is None:
            return None
        groups += [tuple(columns[row] for row in group) for group in close]
    return equal_groups(sorted(groups))


def _gradient_ends(rank: RankTrace) -> NDArray[np.int64]:
    collectives = rank.collectives
    ops = [number for number, op in enumerate(collectives.ops) if op in _GRADIENT_OPS]
    return collectives.end[np.isin(collectives.op, ops)]


def connected_components(
    nodes: Iterable[int], links: Iterable[tuple[int, set[int]]]
) -> list[Columns]:
    """Connected components, each in ascending order, by their lowest node."""
    parent = {node: node for node in nodes}

    def root(node: int) -> int:
        while parent[node] != node:
            node = parent[node]
        return node

    for node, others in links:
        for other in others:
            low, high = sorted((root(node), root(other)))
            parent[high] = low
    components: dict[int, list[int]] = defaultdict(list)
    for node in sorted(parent):
        components[root(node)].append(node)
    return [tuple(members) for _, members in sorted(components.items())]


def equal_groups(groups: Sequence[Columns]) -> tuple[Columns, ...] | None:
    """The groups if there are several of one size, with several ranks each."""
    sizes = {len(group) for group in groups}
    if len(groups) < 2 or len(sizes) != 1 or 1 in sizes:
        return None
    return tuple(groups)
