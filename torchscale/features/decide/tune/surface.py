"""What launches of some combinations of changes say about all combinations, and which launch says
most next. Pure.

The logarithm of throughput is taken for a sum of an effect of each axis' value, of each pair of
values and of the combination itself, plus the noise of launches: a Gaussian process over
combinations, as in the design of computer experiments (Sacks and others 1989; Jones and others
1998). Each launch so tells about every value that it has, where races of single changes learn from
a launch about one of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class _Scale(NamedTuple):
    """Standard deviations of the effects of a value, a pair of values and a combination, as
    logarithms."""

    effect: float
    pair: float
    own: float


_OF_SWITCHES = _Scale(0.15, 0.04, 0.01)
"""Single changes gain or lose some tens of percent, what they add to or take from each other is a
few. Half and double of each change little in simulations."""
_OF_TRAITS = _Scale(0.3, 0.08, 0.08)
"""Strategies differ by factors, and each by some percent from what its degrees let expect. In
simulated machines whose strategies differ so, searches with the scale of switches lost 1 to 6 % of
speed, those with this one under 0.6 %."""
_DRIFT_LAUNCHES = 10.0
"""Launches after which half of what slows the machine for a while has passed (about half a
minute)."""
_DRIFT_SHARE = 0.25
"""Share of the noise of a launch, in variance, that it has in common with those just before and
after it."""
MAX_SETTINGS = 20_000
"""Combinations that are looked at: of more, those of fewer changes."""
SIMPLER = 0.01
"""Changes that are expected to add less than this, as a logarithm, and not known to add anything,
are left out."""
SURE = 1.64
"""Standard deviations beyond which a difference is known (95 %, one-sided)."""
_LEADING, _DRAWS = 200, 400
"""Combinations that may still be the fastest, and random draws of all of their throughputs."""


class AxisChange(NamedTuple):
    """One key of the start at another value."""

    axis: str
    value: str


Setting = tuple[AxisChange, ...]
"""Changes of the start, by axis; empty for the start itself."""

Traits = Mapping[AxisChange | None, tuple[str, ...]]
"""What the values of an axis have in common with each other, each trait at its place; ``None`` for
the start's value."""

START: Setting = ()


class Outlook(NamedTuple):
    """What is expected after some launches.

    Attributes:
        best: The combination that is expected to be the fastest.
        regret: Expected lead of the fastest of all combinations over ``best``, as a logarithm.
        next: The launch from which most is expected: of ``best``, or of its strongest rival.
        simplest: The combination of fewest changes that is about as fast as ``best``, as far as is
            known.
        gain: Expected gain of ``simplest`` over the start, as a logarithm.
        error: Standard deviation of ``gain``.
        single_error: Standard deviation of the gain of a single change, the median over changes;
            ``None`` without any.
    """

    best: Setting
    regret: float
    next: Setting
    simplest: Setting
    gain: float
    error: float
    single_error: float | None


class Surface:
    """All combinations of one change an axis, and what is expected of them."""

    def __init__(
        self, axes: Mapping[str, Sequence[AxisChange]], traits: Mapping[str, Traits] = {}
    ) -> None:
        """
        Args:
            axes: The values that can be combined, without those of the start.
            traits: Axis → traits of its values, which are then in order: of those that are about as
                fast the first is taken. Each trait counts as a value of an axis of its own: what a
                launch says of a value, it says of all that share a trait with it.
        """
        self._values: dict[str, list[AxisChange | None]] = {
            axis: [None, *changes] for axis, changes in axes.items()
        }
        self._ordered = frozenset(traits)
        self._scale = _OF_TRAITS if traits else _OF_SWITCHES
        self._columns = {
            axis: _columns(values, traits.get(axis)) for axis, values in self._values.items()
        }
        self._settings = _combinations(list(self._values.values()))
        self._codes = np.array([self._code(setting) for setting in self._settings])

    def exclude(self, failed: Setting, *, alone: bool = False) -> None:
        """Leave out a combination that failed, and unless ``alone`` all that contain it."""
        kept = [
            place
            for place, setting in enumerate(self._settings)
            if not (failed == setting if alone else set(failed) <= set(setting))
        ]
        self._settings, self._codes = [self._settings[place] for place in kept], self._codes[kept]

    def outlook(self, launches: Sequence[tuple[Setting, float]], noise: float) -> Outlook:
        """What is expected of all combinations after these launches.

        Args:
            launches: Settings and logarithms of their throughputs, in the order in which they ran;
                the start among them.
            noise: Variance of the logarithm from launch to launch.
        """
        measured = np.array([self._code(setting) for setting, _ in launches])
        logs = np.array([log for _, log in launches])
        apart = np.abs(np.subtract.outer(np.arange(len(logs)), np.arange(len(logs))))
        drift = _DRIFT_SHARE * np.exp2(-apart / _DRIFT_LAUNCHES)
        covariance = self._kernel(measured, measured) + noise * (
            drift + (1 - _DRIFT_SHARE) * np.eye(len(logs))
        )
        inverse = np.asarray(np.linalg.inv(covariance), dtype=np.float64)
        ones = np.ones(len(logs))
        level = float(ones @ inverse @ logs / (ones @ inverse @ ones))
        weights = inverse @ (logs - level)
        across = self._kernel(self._codes, measured)
        means = across @ weights
        spread = np.sqrt(
            np.maximum(
                self._own_variance(self._codes.shape[1])
                - np.sum(across @ inverse * across, axis=1),
                0,
            )
        )
        start = self._settings.index(START)
        leading = np.unique(
            [start, int(means.argmax()), *np.argsort(-(means + 2 * spread))[:_LEADING].tolist()]
        )
        near = across[leading]
        among = self._kernel(self._codes[leading], self._codes[leading]) - near @ inverse @ near.T
        unknown_level = 1 - near @ inverse @ ones
        among += np.outer(unknown_level, unknown_level) / (ones @ inverse @ ones)
        draws = _draws(means[leading], among, seed=len(logs))
        best, first = int(means[leading].argmax()), int(np.flatnonzero(leading == start)[0])
        ahead = np.maximum(draws - draws[best], 0)
        rival = int(ahead.mean(axis=1).argmax())
        runs = [
            sum(setting == self._settings[leading[place]] for setting, _ in launches)
            for place in (best, rival)
        ]
        chosen = rival if runs[1] < runs[0] or (runs[1] == runs[0] > 0) else best
        errors = np.sqrt(np.maximum(among.diagonal() + among[best, best] - 2 * among[best], 0))
        lost = means[leading[best]] - means[leading]
        close = np.flatnonzero((lost <= SIMPLER) & (lost <= SURE * errors))
        simplest = min(
            close.tolist(),
            key=lambda place: (*self._simplicity(self._settings[leading[place]]), lost[place]),
        )
        variance = among[simplest, simplest] + among[first, first] - 2 * among[simplest, first]
        return Outlook(
            best=self._settings[leading[best]],
            regret=float(ahead.max(axis=0).mean()),
            next=self._settings[leading[chosen]],
            simplest=self._settings[leading[simplest]],
            gain=float(means[leading[simplest]] - means[start]),
            error=math.sqrt(max(float(variance), 0.0)),
            single_error=self._single_error(measured, inverse),
        )

    def _single_error(
        self, measured: NDArray[np.int64], inverse: NDArray[np.float64]
    ) -> float | None:
        """Standard deviation of the gain of a single change over the start, the median over
        changes."""
        singles = [
            self._code(setting) for setting in self._settings if len(setting) < 2
        ]  # the start is the first
        if len(singles) < 2:
            return None
        codes = np.array(singles)
        near = self._kernel(codes, measured)
        among = self._kernel(codes, codes) - near @ inverse @ near.T
        variances = among.diagonal() + among[0, 0] - 2 * among[0]
        return float(np.median(np.sqrt(np.maximum(variances[1:], 0))))

    def _kernel(self, mine: NDArray[np.int64], theirs: NDArray[np.int64]) -> NDArray[np.float64]:
        """Covariance of the effects of combinations: by the values that they have in common."""
        shared = np.zeros((len(mine), len(theirs)))
        for axis in range(mine.shape[1]):
            shared += mine[:, axis, None] == theirs[None, :, axis]
        same: NDArray[np.bool_] = shared == mine.shape[1]
        effect, pair, own = self._scale
        return np.asarray(
            effect**2 * shared + pair**2 * shared * (shared - 1) / 2 + own**2 * same,
            dtype=np.float64,
        )

    def _own_variance(self, axes: int) -> float:
        effect, pair, own = self._scale
        return effect**2 * axes + pair**2 * axes * (axes - 1) / 2 + own**2

    def _code(self, setting: Setting) -> list[int]:
        """Its value on each axis, or the traits of that."""
        changed = {change.axis: change for change in setting}
        return [
            code for axis, columns in self._columns.items() for code in columns[changed.get(axis)]
        ]

    def _simplicity(self, setting: Setting) -> tuple[int, int]:
        """Sorts settings of fewer changes first, and of these those with traits by the order of
        their axis."""
        order = sum(
            self._values[change.axis].index(change)
            for change in setting
            if change.axis in self._ordered
        )
        return len(setting), order


def _columns(
    values: Sequence[AxisChange | None], traits: Traits | None
) -> dict[AxisChange | None, tuple[int, ...]]:
    """Numbers that stand for each value: its own, or one for each of its traits."""
    if traits is None:
        return {value: (number,) for number, value in enumerate(values)}
    known = [sorted(set(column)) for column in zip(*traits.values(), strict=True)]
    return {
        value: tuple(
            column.index(trait) for column, trait in zip(known, traits[value], strict=True)
        )
        for value in values
    }


def _combinations(axes: Sequence[Sequence[AxisChange | None]]) -> list[Setting]:
    """Combinations of changes, those of few changes first; at most :data:`MAX_SETTINGS`, and all of
    a number of changes or none."""
    found: list[Setting] = [START]
    for count in range(1, len(axes) + 1):
        added = [
            tuple(sorted(changes))
            for chosen in itertools.combinations(axes, count)
            for changes in itertools.islice(
                itertools.product(
                    *([change for change in values if change is not None] for values in chosen)
                ),
                MAX_SETTINGS,
            )
        ]
        if len(found) + len(added) > MAX_SETTINGS:
            break
        found += added
    return found


def _draws(
    means: NDArray[np.float64], covariance: NDArray[np.float64], *, seed: int
) -> NDArray[np.float64]:
    """Random values of all combinations together: a row for each, the same at every call with the
    same seed, so that a search that is continued asks for the same launches."""
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0))
    normal = np.random.default_rng(seed).standard_normal((len(means), _DRAWS))
    drawn: NDArray[np.float64] = means[:, None] + root @ normal
    return drawn
