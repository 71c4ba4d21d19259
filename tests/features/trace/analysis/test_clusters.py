"""Groups of rows, compared with the minimum spanning tree of all pairs."""

from __future__ import annotations

import time

import numpy as np
import pytest
from numpy.typing import NDArray

from torchscale.features.trace.analysis import clusters
from torchscale.features.trace.analysis.clusters import close_groups

LIMIT, RATIO = 100.0, 10.0


def by_tree(rows: NDArray[np.int64]) -> list[list[int]] | None:
    """The same from the tree itself, by Prim: every pair is compared."""
    edges: list[tuple[float, int, int]] = []
    nearest = dict.fromkeys(range(1, len(rows)), (np.inf, 0))
    added = 0
    while nearest:
        for row in nearest:
            distance = float(np.median(np.abs(rows[added] - rows[row])))
            nearest[row] = min(nearest[row], (distance, added))
        length, first, added = min((*nearest[row], row) for row in nearest)
        edges.append((length, first, added))
        del nearest[added]
    within = [edge for edge in sorted(edges) if edge[0] <= LIMIT]
    between = [length for length, _, _ in sorted(edges)[len(within) :]]
    if within and between and between[0] <= RATIO * within[-1][0]:
        return None
    group = list(range(len(rows)))
    for _, first, second in within:
        old = group[second]
        group = [group[first] if number == old else number for number in group]
    return sorted(
        [row for row, number in enumerate(group) if number == each] for each in set(group)
    )


@pytest.mark.parametrize("seed", range(40))
def test_groups_are_those_of_the_tree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "_BOX_ROWS", 3)
    chance = np.random.default_rng(seed)
    count, columns = int(chance.integers(2, 40)), int(chance.integers(1, 9))
    apart = int(chance.choice([50, 150, 700, 1000, 5000]))
    width = int(chance.choice([1, 20, 70, 150]))
    centres = np.arange(4)[chance.integers(0, 4, count)] * apart
    rows = 10_000 * np.arange(columns) + centres[:, None]
    rows = rows + chance.integers(0, width, (count, columns))
    # A rank may be late in one collective, and two may be alike.
    rows[chance.integers(0, count), chance.integers(0, columns)] += 3000
    rows[-1] = rows[0]
    found = close_groups(rows, LIMIT, RATIO)
    assert (found if found is None else sorted(found)) == by_tree(rows)


def test_a_chain_is_one_group() -> None:
    rows = np.array([[90 * rank, 90 * rank + 7] for rank in range(300)])
    assert close_groups(rows, LIMIT, RATIO) == [list(range(300))]


def test_the_shortest_links_decide_whether_groups_are_far_apart() -> None:
    """From the first row the farthest of its group is 90 away, but each is 9 from the next."""
    near = [[9 * number] for number in range(11)]
    assert close_groups(np.array([*near, [90 + 200]]), LIMIT, RATIO) == [list(range(11)), [11]]
    assert close_groups(np.array([[0], [90], [90 + 200]]), LIMIT, RATIO) is None


def test_thousands_of_rows_take_seconds() -> None:
    chance = np.random.default_rng(0)
    ends = 1_000_000 * np.arange(60) + np.repeat(np.arange(16) * 300_000, 256)[:, None]
    rows = ends + chance.integers(0, 40_000, (16 * 256, 60))
    began = time.process_time()
    found = close_groups(rows, 100_000, RATIO)
    assert found is None or len(found) == 16
    # Eight million pairs.
    assert time.process_time() - began < 20
