"""Rows of times that lie close to each other, found without a comparison of all pairs.

The distance of two rows is the median of the distances of their times. It is no metric (two rows
can each be close to a third in other halves of their columns), so that nothing follows for two rows
from their distances to a third. What bounds it from below are the gaps between boxes: where the
smallest and largest times of two sets of rows lie apart by ``gap[k]`` in column k, every two rows
of them are at least the median of ``gap`` apart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_BOX_ROWS = 16
"""Rows of a box. With more, one row that is late in a column widens the box for more others; with
fewer there are more boxes to compare: of 2,048 rows 128."""
_AT_ONCE = 1 << 22
"""Times that are compared at once: 32 MB."""
_HALF = 0.5
"""Distances are multiples of half a nanosecond: medians of whole ones."""

Times = NDArray[np.int64]
Places = NDArray[np.int64]


def close_groups(rows: Times, limit: float, ratio: float) -> list[list[int]] | None:
    """Rows that are linked by distances of at most ``limit``, as the minimum spanning tree of all
    rows links them; each group in ascending order.

    Args:
        rows: A row for each, a column for each time, nanoseconds.
        limit: Nanoseconds.
        ratio: Rows of different groups have to be more than so many times as far apart as the
            longest edge of the tree within a group is long.

    Returns:
        ``None`` where they are not.
    """
    distinct, copies = np.unique(rows, axis=0, return_inverse=True)
    linked = _link(distinct, limit)
    if len(linked.groups) < len(rows) and not _are_apart(distinct, linked, ratio):
        return None
    group_of = np.empty(len(distinct), dtype=np.int64)
    for number, members in enumerate(linked.groups):
        group_of[members] = number
    of_row = group_of[np.ravel(copies)]
    return [np.flatnonzero(of_row == number).tolist() for number in range(len(linked.groups))]


@dataclass(frozen=True)
class _Linked:
    """Groups of rows, and boxes around some rows of a group each.

    Attributes:
        groups: Rows of each group.
        longest: The longest distance by which rows were linked: no edge of a minimum spanning tree
            within a group is longer.
        boxes: Rows of each box.
        group_of_box: Group that the rows of each box are of.
        low, high: Smallest and largest times of each box, by column.
    """

    groups: list[Places]
    longest: float
    boxes: list[Places]
    group_of_box: NDArray[np.int64]
    low: Times
    high: Times


def _link(rows: Times, limit: float) -> _Linked:
    """Link rows to the first of them that is close, then what boxes do not show to be apart."""
    stars, longest = _stars(rows, limit)
    boxes, star_of = [], []
    for number, members in enumerate(stars):
        for first in range(0, len(members), _BOX_ROWS):
            boxes.append(members[first : first + _BOX_ROWS])
            star_of.append(number)
    low = np.array([rows[box].min(axis=0) for box in boxes])
    high = np.array([rows[box].max(axis=0) for box in boxes])
    parent = list(range(len(stars)))
    for one, other in _near_boxes(low, high, np.array(star_of), limit):
        roots = _root(parent, star_of[one]), _root(parent, star_of[other])
        if roots[0] == roots[1]:
            continue
        nearest = _nearest(rows, boxes[one], boxes[other])
        if nearest <= limit:
            parent[max(roots)] = min(roots)
            longest = max(longest, nearest)
    roots_of = [_root(parent, star) for star in range(len(stars))]
    numbers = {root: number for number, root in enumerate(sorted(set(roots_of)))}
    of_star = [numbers[root] for root in roots_of]
    groups: list[list[Places]] = [[] for _ in numbers]
    for star, members in enumerate(stars):
        groups[of_star[star]].append(members)
    return _Linked(
        groups=[np.sort(np.concatenate(parts)) for parts in groups],
        longest=longest,
        boxes=boxes,
        group_of_box=np.array([of_star[star] for star in star_of]),
        low=low,
        high=high,
    )


def _stars(rows: Times, limit: float) -> tuple[list[Places], float]:
    """Rows around the first that no earlier star has, and the longest distance to one's centre."""
    stars: list[Places] = []
    longest = 0.0
    left = np.arange(len(rows))
    while len(left):
        distances = _distances(rows, left, rows[left[0]])
        close = distances <= limit
        stars.append(left[close])
        longest = max(longest, float(distances[close].max()))
        left = left[~close]
    return stars, longest


def _are_apart(rows: Times, linked: _Linked, ratio: float) -> bool:
    """Whether no two rows of different groups are at most ``ratio`` times as far apart as the
    longest edge within a group."""
    nearest = np.inf
    near = _near_boxes(linked.low, linked.high, linked.group_of_box, ratio * linked.longest)
    for one, other in near:
        nearest = min(nearest, _nearest(rows, linked.boxes[one], linked.boxes[other]))
    if nearest > ratio * linked.longest:
        return True
    # Rows were linked by some distance, not by the shortest that would do.
    shorter = (nearest - _HALF) / ratio
    return all(len(_link(rows[members], shorter).groups) == 1 for members in linked.groups)


def _near_boxes(
    low: Times, high: Times, group_of: NDArray[np.int64], limit: float
) -> Iterator[tuple[int, int]]:
    """Pairs of boxes of different groups that may hold rows at most ``limit`` apart."""
    for box in range(len(low)):
        later = box + 1 + np.flatnonzero(group_of[box + 1 :] != group_of[box])
        for part in _parts(later, low.shape[1]):
            gaps = np.maximum(low[part] - high[box], low[box] - high[part])
            bound = np.median(np.maximum(gaps, 0), axis=1)
            for other in part[bound <= limit].tolist():
                yield box, other


def _nearest(rows: Times, some: Places, others: Places) -> float:
    """The least distance of a row of one box to a row of another."""
    size = max(1, _AT_ONCE // (_BOX_ROWS * max(1, rows.shape[1])))
    parts = (some[first : first + size] for first in range(0, len(some), size))
    apart = (np.abs(rows[part][:, None] - rows[others][None]) for part in parts)
    return min(float(np.median(distances, axis=2).min()) for distances in apart)


def _distances(rows: Times, chosen: Places, row: Times) -> NDArray[np.float64]:
    """Distances of the chosen rows to one."""
    parts = _parts(chosen, rows.shape[1])
    return np.concatenate([np.median(np.abs(rows[part] - row), axis=1) for part in parts])


def _parts(places: Places, columns: int) -> Iterator[Places]:
    """So many at a time as fit in memory."""
    size = max(1, _AT_ONCE // max(1, columns))
    for first in range(0, len(places), size):
        yield places[first : first + size]


def _root(parent: list[int], node: int) -> int:
    while parent[node] != node:
        parent[node] = parent[parent[node]]
        node = parent[node]
    return node
