"""Where the level of a series changed: binary segmentation with a permutation test, judged over
many series.

A segment is split where the standardized difference of means is largest: of all values before and
after (Sen and Srivastava 1975), or of equally many before and after (moving sums, Eichinger and
Kirch 2018), which shows a change that was taken back later. That difference is held against the
largest ones of random permutations of the segment (Antoch and Hušková 2001), so that no
distribution of the noise is assumed, only that without a change the order of values is by chance.
Both parts of a split segment are searched in turn (Vostrikova 1981). Values are in units of the
noise from one to the next, and clipped (Huber 1964), so that one outlier is no change. The tests of
all series in a round are judged together (Benjamini and Hochberg 1995).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FALSE_DISCOVERY_RATE = 0.01
"""Share of change points that may be false. A history is looked at after every run: at 0.05, a
machine without any change would report one in every twentieth night, as the null hypothesis holds
for all series then."""
MIN_LENGTH = 5
"""Values on either side of a change point: a bad spell of one to four runs is not called a new
level."""
_CLIP = 3.0
"""Limit of scores, in units of noise: beyond this, normal noise has 0.3 % of its values and heavy
tails a few."""
_LEAST_NOISE = 5e-4
"""Least noise of logarithms. Peak memory often repeats to the byte; what differs by less than 0.05
% is taken as equal to it."""
_STAGES = (99, 999)
"""Permutations of all tests, then of those that may be significant; further ones are for what these
leave undecided."""
_BLOCK = 500
"""Permutations at a time: their sums stay in the cache of a core."""
_MAX_PERMUTATIONS = 200_000
"""Enough for 1,000 series with one change among them: the smallest p must be below 0.01 ÷ 1,000."""
_ENOUGH_LARGER = 10
"""Permutations with a larger difference after which p is known to a third of itself (Besag and
Clifford 1991)."""
_SEED = 20_260_101
"""The same series always has the same change points."""
_Array = NDArray[np.float64]


@dataclass(frozen=True)
class NoisySeries:
    """A series in order of time.

    Attributes:
        logs: Logarithms of the levels.
        variances: Variance of each logarithm, as far as it is known from repeated launches; 0 where
            nothing is known.
    """

    logs: tuple[float, ...]
    variances: tuple[float, ...] = ()


def change_points(series: Sequence[NoisySeries]) -> list[tuple[int, ...]]:
    """The places of each series where a new level begins: indices of the first value of it,
    ascending.

    Args:
        series: All series that are looked at together; that there are many of them makes none more
            likely to be called changed.

    Raises:
        ValueError: a logarithm or a variance is not finite.
    """
    prepared = [_prepared(one) for one in series]
    found: list[set[int]] = [set() for _ in series]
    segments = [(number, 0, len(one.logs)) for number, one in enumerate(series)]
    while segments:
        testable = [segment for segment in segments if segment[2] - segment[1] >= 2 * MIN_LENGTH]
        splits = [_best_split(prepared[number], start, end) for number, start, end in testable]
        rejected = _rejected(splits)
        places = [split.place for split in splits]
        segments = []
        for (number, start, end), place, changed in zip(testable, places, rejected, strict=True):
            if changed:
                found[number].add(place)
                segments += [(number, start, place), (number, place, end)]
    return [_confirmed(one, sorted(places)) for one, places in zip(prepared, found, strict=True)]


@dataclass(frozen=True)
class _Prepared:
    """Values in units of the noise from one to the next, and weights (1 where all weigh the
    same)."""

    values: _Array
    weights: _Array

    def scores(self, start: int, end: int) -> _Array:
        """Distances of a segment's values from their median, clipped."""
        values = self.values[start:end]
        return np.clip(values - np.median(values), -_CLIP, _CLIP)


def _prepared(series: NoisySeries) -> _Prepared:
    logs = np.asarray(series.logs, dtype=np.float64)
    known = np.asarray(series.variances or (0.0,) * len(logs), dtype=np.float64)
    if not (np.isfinite(logs).all() and np.isfinite(known).all()):
        raise ValueError("a level or its variance is not finite")
    noise = _noise(logs)
    # Of one value: what runs have in common varies by the rest of the noise, whatever the number of
    # launches.
    between = 0.0
    if len(known):
        between = max(0.0, noise**2 - float(known.mean()))
    variances = between + known
    if len(logs) and np.ptp(known):
        weights = noise**2 / np.maximum(variances, _LEAST_NOISE**2)
    else:
        weights = np.ones(len(logs))
    return _Prepared(logs / noise, weights)


def _noise(logs: _Array) -> float:
    """Standard deviation from one value to the next, which changes of the level hardly reach: the
    median absolute difference of neighbours, scaled as for normal noise (0.6745 is the third
    quartile of a standard normal)."""
    if len(logs) < 2:
        return _LEAST_NOISE
    steps = np.abs(np.diff(logs))
    noise = float(np.median(steps)) / 0.6745 / math.sqrt(2)
    return max(noise, _LEAST_NOISE)


class _Split:
    """The best place to split a segment, how far apart the means are there, and how often that is
    so by chance."""

    def __init__(
        self, scores: _Array, weights: _Array | None, place: int, statistic: float
    ) -> None:
        self.place = place
        self.larger = self.done = 0
        self._scores, self._weights = scores, weights
        self._statistic = statistic
        self._random = np.random.default_rng(_SEED)

    @property
    def probability(self) -> float:
        """Probability of so large a difference if the order is by chance."""
        return (self.larger + 1) / (self.done + 1)

    @property
    def surely_chance(self) -> bool:
        """Whether more permutations will not make it significant."""
        return self.larger >= _ENOUGH_LARGER or self._statistic == 0

    def permute(self, count: int) -> None:
        """Look at this many random orders more, or at fewer if they say that it is chance."""
        bound = self._statistic * (
            1 - 1e-12
        )  # a permutation may sum the same values in another order
        while count > 0 and not self.surely_chance:
            rows = min(count, _BLOCK)
            largest = np.zeros(rows)
            scores, weights = self._permuted(rows)
            for differences in _differences(scores, weights):
                np.maximum(largest, differences.max(axis=1), out=largest)
            self.larger += int((largest >= bound).sum())
            self.done += rows
            count -= rows

    def _permuted(self, rows: int) -> tuple[_Array, _Array | None]:
        if self._weights is None:
            return self._random.permuted(np.tile(self._scores, (rows, 1)), axis=1), None
        order = self._random.permuted(np.tile(np.arange(len(self._scores)), (rows, 1)), axis=1)
        return self._scores[order], self._weights[order]


def _rejected(splits: Sequence[_Split]) -> list[bool]:
    """Whether each split is significant; permutations are spent on those alone that may be."""
    rejected = [False] * len(splits)
    for wanted in (*_STAGES, min(_MAX_PERMUTATIONS, int(2 * len(splits) / FALSE_DISCOVERY_RATE))):
        for split, decided in zip(splits, rejected, strict=True):
            if not decided:
                split.permute(wanted - split.done)
        rejected = _benjamini_hochberg([split.probability for split in splits])
    return rejected


def _best_split(series: _Prepared, start: int, end: int) -> _Split:
    scores, weights = series.scores(start, end), series.weights[start:end]
    unequal = rows = None
    if np.ptp(weights):
        unequal, rows = weights, weights[None, :]
    best, largest = MIN_LENGTH, -1.0
    for differences in _differences(scores[None, :], rows):
        place = int(differences[0].argmax())
        if differences[0, place] > largest:
            # All scales are symmetric: their places begin as far from the start as they stop before
            # the end.
            best = place + (len(scores) + 1 - differences.shape[1]) // 2
            largest = float(differences[0, place])
    return _Split(scores, unequal, start + best, largest)


def _differences(scores: _Array, weights: _Array | None) -> Iterator[_Array]:
    """Standardized differences of the (weighted) means before and after each place, for rows of
    scores. First of all values, from ``MIN_LENGTH`` to ``MIN_LENGTH`` before the end; then of
    windows of 2, 4, 8 … × ``MIN_LENGTH`` on either side. Shape of each (rows, places)."""
    length = scores.shape[1]
    if weights is None:
        sums, sizes = _sums(scores), _sums(np.ones((1, length)))
    else:
        sums, sizes = _sums(scores * weights), _sums(weights)
    inner = slice(MIN_LENGTH, length + 1 - MIN_LENGTH)
    yield _standardized(sums[:, inner], sums[:, -1:], sizes[:, inner], sizes[:, -1:])
    window = 2 * MIN_LENGTH
    while 2 * window <= length:
        first, middle, last = (
            slice(None, -2 * window),
            slice(window, -window),
            slice(2 * window, None),
        )
        yield _standardized(
            sums[:, middle] - sums[:, first],
            sums[:, last] - sums[:, first],
            sizes[:, middle] - sizes[:, first],
            sizes[:, last] - sizes[:, first],
        )
        window *= 2


def _sums(values: _Array) -> _Array:
    """Sums of the first 0, 1, 2 … values of each row."""
    return np.concatenate([np.zeros((len(values), 1)), values.cumsum(axis=1)], axis=1)


def _standardized(part: _Array, whole: _Array, part_size: _Array, whole_size: _Array) -> _Array:
    """(A ÷ a − B ÷ b) × √(a b ÷ (a + b)), where A and a are of the part, B and b of the rest."""
    spread = np.sqrt(part_size * (whole_size - part_size) * whole_size)
    result: _Array = np.abs(part * whole_size - whole * part_size) / spread
    return result


def _benjamini_hochberg(probabilities: Sequence[float]) -> list[bool]:
    """Which hypotheses are rejected with at most that share of false rejections."""
    order = sorted(range(len(probabilities)), key=lambda index: probabilities[index])
    count = len(order)
    last = max(
        (
            rank
            for rank, index in enumerate(order, 1)
            if probabilities[index] <= FALSE_DISCOVERY_RATE * rank / count
        ),
        default=0,
    )
    rejected = set(order[:last])
    return [index in rejected for index in range(count)]


def _confirmed(series: _Prepared, places: Sequence[int]) -> tuple[int, ...]:
    """Places that are also significant between their neighbours alone. An early split may have been
    near a change and not at it; once the change itself is found too, the first is none."""
    kept = _refined(series, places)
    while len(kept) > 1:  # a single one was tested like this when it was found
        bounds = [0, *kept, len(series.values)]
        splits = [
            _best_split(series, start, end) for start, end in zip(bounds, bounds[2:], strict=False)
        ]
        for split in splits:
            split.permute(_STAGES[-1])
        weakest = max(range(len(kept)), key=lambda number: splits[number].probability)
        if splits[weakest].probability <= FALSE_DISCOVERY_RATE:
            break
        kept = _refined(series, [*kept[:weakest], *kept[weakest + 1 :]])
    return tuple(kept)


def _refined(series: _Prepared, places: Sequence[int]) -> list[int]:
    """Each place again, between its neighbours alone: where it was found, later changes were still
    in the segment (Bai 1997)."""
    refined = list(places)
    for number in range(len(refined)):
        start = 0
        if number:
            start = refined[number - 1]
        if number + 1 < len(refined):
            end = refined[number + 1]
        else:
            end = len(series.values)
        refined[number] = _best_split(series, start, end).place
    return refined
