"""Steps at which the level of a rank beside the others, or of the whole job, changed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.signals import MIN_COMPARED
from torchscale.analysis.diagnosis.step_windows import block_medians
from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.analysis.stats.change_points import NoisySeries, change_points
from torchscale.analysis.stats.peers import medians_of_others
from torchscale.features.watch.analysis.step_log import StepLog

_POINTS = 240
"""Of the series in which changes are looked for: a change is placed to 0.5 % of the job, and the
permutations of a series take 20 ms."""
_LEAST_POINTS = 24
_POINT_STEPS = 5
_POINT_SECONDS = 0.1
"""A point of the series is the median of so many steps and so long at least: what disturbs a host
lasts some milliseconds, and neighbouring points would not be independent."""
_LEAST_CHANGE = 0.05
"""Of the logarithm of a level: smaller changes come and go with a host's clock."""
LEAST_STRETCH = 2 * MIN_COMPARED
"""Steps of a stretch that is judged by itself: of changes that are nearer, the largest counts."""
_CLOSE_POINTS = 4
"""Changes of several series that lie so near each other are one."""
_MAX_SERIES = 16
"""Ranks whose series are searched: those that were slowest for a while."""


def level_changes(table: JobSteps, log: StepLog) -> tuple[int, ...]:
    """Steps at which the level of a rank beside the others, or of the whole job, changed."""
    seconds = float(table.wall.mean(axis=0).sum()) * log.per_column
    count = min(_POINTS, len(table) // _POINT_STEPS, int(seconds / _POINT_SECONDS))
    if count < _LEAST_POINTS:
        return ()
    edges = np.linspace(0, len(table), count + 1).round().astype(int)
    logs = [block_medians(np.log(np.maximum(table.wall.mean(axis=0), 1e-9))[None], edges)[0]]
    if len(log.ranks) > 1:
        relative = block_medians(np.log(np.maximum(table.busy, 1e-9)), edges)
        relative = relative - medians_of_others(relative)
        peaks = relative.max(axis=1)
        logs += list(relative[np.argsort(-peaks)[:_MAX_SERIES]])
    places = change_points([NoisySeries(tuple(series.tolist())) for series in logs])
    sizes: dict[int, float] = {}
    for series, of_series in zip(logs, places, strict=True):
        for place, size in _large(series, of_series).items():
            sizes[place] = max(size, sizes.get(place, 0.0))
    kept: list[int] = []
    for place in sorted(sizes, key=lambda place: -sizes[place]):
        steps = [abs(int(edges[place] - edges[other])) * log.per_column for other in kept]
        points = [abs(place - other) for other in kept]
        if all(
            count >= LEAST_STRETCH and distance > _CLOSE_POINTS
            for count, distance in zip(steps, points, strict=True)
        ):
            kept.append(place)
    return tuple(table.first + int(edges[place]) * log.per_column for place in sorted(kept))


def _large(series: NDArray[np.float64], places: Sequence[int]) -> dict[int, float]:
    """Changes by enough, from the median of the level before to that of the one after, each with
    its size."""
    edges = [0, *places, len(series)]
    levels = [float(np.median(series[begin:end])) for begin, end in pairwise(edges)]
    sizes = {
        place: abs(after - before)
        for place, before, after in zip(places, levels, levels[1:], strict=False)
    }
    return {place: size for place, size in sizes.items() if size >= _LEAST_CHANGE}
