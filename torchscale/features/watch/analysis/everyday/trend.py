"""Whether a series of memory readings grows, and by how much: robust against peaks, plateaus and
saw teeth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.stats.levels import line
from torchscale.features.watch.analysis.everyday.watched import Series

_BLOCKS = 12
"""Of the readings, of each the least one: what a cache, an evaluation or Python's garbage collector
adds for a while is above it."""
_LEAST_READINGS = 20
_LEAST_SECONDS = 20.0
"""That readings last; also what is left out at the start, where a third of them is as long:
allocators, caches and thread pools settle for so long."""
_SETTLES = 0.1
"""Share of the time that is left out at least: what settles does so more and more slowly."""
_LATE_SHARE = 0.6
"""Of the growth from the first quarter to the second that the third to the fourth must reach. What
grows with the logarithm of time, as an allocator that sees more and more sizes, has 0.41 from a
tenth of the job on."""
_LAST_SHARE = 0.5
"""Of the mean growth of a quarter that the last quarter must reach: what has stopped grows no
more."""
_CORRELATION = 0.8
"""Kendall's, between time and the least readings. Of 12 values without a trend it has a standard
deviation of 0.22."""
_OFF_LINE = 0.08
"""Share of the growth by which blocks may scatter around a line. What is kept in every step makes a
line; healthy processes that settled for a minute had 0.12 and more."""


@dataclass(frozen=True)
class MemoryTrend:
    """Memory that grows.

    Attributes:
        per_step, per_second: Bytes; medians of the slopes between all pairs of blocks (Theil and
            Sen). The pace of steps may change.
        least, most: Ends of the 95 % interval of ``per_second`` (Sen 1968).
        grown: Bytes from the first to the last block.
        level: Bytes of the first block.
        peak: Most bytes in the last block.
        correlation: Kendall's, with time.
    """

    per_step: float
    per_second: float
    least: float
    most: float
    grown: float
    level: float
    peak: float
    correlation: float


@dataclass(frozen=True)
class Demands:
    """How much must have been seen.

    Attributes:
        blocks: Of readings.
        readings: In all.
        seconds: That they last.
    """

    blocks: int
    readings: int
    seconds: float


BY_ITSELF = Demands(_BLOCKS, _LEAST_READINGS, _LEAST_SECONDS)
BESIDE_OTHERS = Demands(blocks=8, readings=8, seconds=3.0)
"""Of a rank beside the others of its job: what settles does so on all of them."""


def growth(
    time_ns: NDArray[np.int64],
    steps: NDArray[np.int64],
    values: Series,
    demands: Demands = BY_ITSELF,
) -> MemoryTrend | None:
    """The trend of readings that grow to their end; ``None`` where they do not, or are too few.

    Args:
        time_ns, steps: When each was read, ascending.
        values: Bytes.
        demands: How much must have been seen.
    """
    count = demands.blocks
    if not len(values):
        return None
    seconds = (time_ns - time_ns[0]) * 1e-9
    kept = seconds >= max(_SETTLES * seconds[-1], min(_LEAST_SECONDS, seconds[-1] / 3))
    seconds, at, values = seconds[kept], steps[kept].astype(np.float64), values[kept]
    if len(values) < demands.readings or seconds[-1] - seconds[0] < demands.seconds:
        return None
    if at[-1] - at[0] < count:
        return None  # no steps to which it could belong
    edges = np.linspace(0, len(values), count + 1).round().astype(int)[:-1]
    sizes = np.diff(np.append(edges, len(values)))
    least = np.minimum.reduceat(values, edges)
    middle = np.add.reduceat(seconds, edges) / sizes
    middle_step = np.add.reduceat(at, edges) / sizes
    by_time, by_step = line(middle, least), line(middle_step, least)
    quarters = [float(np.median(part)) for part in np.array_split(least, 4)]
    # neither one change of level nor a passing rise is growth
    is_line = min(by_time.off, by_step.off) <= _OFF_LINE * float(least[-1] - least[0])
    if by_time.correlation < _CORRELATION or not _goes_on(quarters) or not is_line:
        return None
    per_second = by_time.slope.value
    fewest, most = by_time.slope.bounds
    return MemoryTrend(
        per_step=by_step.slope.value,
        per_second=per_second,
        least=fewest,
        most=most,
        grown=per_second * float(middle[-1] - middle[0]),
        level=float(least[0]),
        peak=float(values[edges[-1] :].max()),
        correlation=by_time.correlation,
    )


def _goes_on(quarters: list[float]) -> bool:
    """Whether the second half grows nearly as much as the first, and the last quarter still
    does."""
    early, late = quarters[1] - quarters[0], quarters[3] - quarters[2]
    whole = quarters[3] - quarters[0]
    return whole > 0 and late >= _LATE_SHARE * early and late >= _LAST_SHARE * whole / 3
