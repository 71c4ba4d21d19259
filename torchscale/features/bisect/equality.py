"""The search for what changed a number that every launch of an environment repeats: equality decides,
and one launch of an environment is enough. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from torchscale.features.bisect.hypotheses import AnswerKind, Hypothesis, told_apart

REPEATS = 2
"""Launches of both ends, and of the environments that the answer rests on: they show that a launch
repeats the one before."""
_MOST_SHIFTS = 4
"""Changes that are searched: where each version prints another number, all versions would be
launched."""


@dataclass(frozen=True)
class Sameness:
    """Two numbers that count as one.

    Attributes:
        tolerance: |a - b| up to this times max(1, |a|) is no difference.
        by_kind: All finite numbers are one, and all others: a change is NaN or an infinity.
    """

    tolerance: float = 0.0
    by_kind: bool = False

    def holds(self, first: float, second: float) -> bool:
        """Whether the second counts as the first."""
        if self.by_kind:
            return math.isfinite(first) == math.isfinite(second)
        distance = apart(first, second)
        return distance == 0 or distance <= self.tolerance * max(1.0, abs(first)) < math.inf


def apart(first: float, second: float) -> float:
    """|first - second|; 0 for NaN and NaN, infinite where only one is finite."""
    if first == second or (math.isnan(first) and math.isnan(second)):
        return 0.0
    distance = abs(first - second)
    return math.inf if math.isnan(distance) else distance


@dataclass(frozen=True)
class Shift:
    """A change of the number between two environments that were launched, in the order of all.

    Attributes:
        before, after: The environments.
        size: How far apart their numbers are.
        between: Environments in between that can be launched.
    """

    before: int
    after: int
    size: float
    between: tuple[int, ...]


@dataclass(frozen=True)
class Equality:
    """What the numbers of all launches say.

    Attributes:
        hypotheses: The answers that are possible.
        count: Number of environments, the good end first and the bad end last.
        values: Environment → the numbers of its launches; both ends have some.
        unusable: Environments that cannot be launched.
        same: Which numbers count as one.
    """

    hypotheses: tuple[Hypothesis, ...]
    count: int
    values: Mapping[int, Sequence[float]]
    unusable: frozenset[int]
    same: Sameness

    @cached_property
    def unlike(self) -> int | None:
        """The first environment whose launches do not repeat each other."""
        for place, (first, *others) in sorted(self.values.items()):
            if not all(self.same.holds(first, other) for other in others):
                return place
        return None

    @cached_property
    def levels(self) -> dict[int, int]:
        """Environment → which of the different numbers it has: 0 for that of the good end, 1 for
        that of the bad end, then further ones in the order of the environments."""
        known = [self.values[0][0]]
        found = {}
        for place in (0, self.count - 1, *sorted(self.values)):
            value = self.values[place][0]
            alike = [level for level, one in enumerate(known) if self.same.holds(one, value)]
            if not alike:
                alike = [len(known)]
                known.append(value)
            found[place] = min(alike, key=lambda level: apart(known[level], value))
        return found

    @property
    def differs(self) -> bool:
        """Whether the ends do."""
        return not self.same.holds(self.values[0][0], self.values[self.count - 1][0])

    @property
    def is_ordered(self) -> bool:
        """Whether environments follow each other, as versions do."""
        return self.hypotheses[0].kind is AnswerKind.STEP

    @property
    def measurable(self) -> list[int]:
        """Environments that can be launched."""
        return [place for place in range(self.count) if place not in self.unusable]

    @cached_property
    def shifts(self) -> list[Shift]:
        """All changes between environments in order: those of neighbors first, of these the largest
        first."""
        launched = [place for place in self.measurable if place in self.values]
        found = [
            Shift(
                before,
                after,
                apart(self.values[before][0], self.values[after][0]),
                tuple(place for place in self.measurable if before < place < after),
            )
            for before, after in pairwise(launched)
            if self.levels[before] != self.levels[after]
        ]
        return sorted(found, key=lambda one: (bool(one.between), -one.size))

    @cached_property
    def left(self) -> list[Hypothesis]:
        """The answers that fit: environments of one pattern print one number, those of different
        patterns different ones."""
        return [one for one in self.hypotheses if self._fits(one)]

    def _fits(self, one: Hypothesis) -> bool:
        pairs = {(_pattern(one, place), level) for place, level in self.levels.items()}
        patterns, levels = zip(*pairs, strict=True)
        return len(pairs) == len(set(patterns)) == len(set(levels))

    @property
    def answer(self) -> list[Hypothesis]:
        """The answer, or several that no launch can tell apart; empty where none fits."""
        if not self.is_ordered:
            return self.left
        shift = self.shifts[0]
        return [one for one in self.hypotheses if shift.before < one.members[0] <= shift.after]

    def next_launch(self) -> int | None:
        """The environment to launch next; ``None`` where the answer is known."""
        asked = self._halving() if self.is_ordered else self._telling()
        if asked is not None:
            return asked
        once = [place for place in self._basis() if len(self.values[place]) < REPEATS]
        return once[0] if once else None

    def _halving(self) -> int | None:
        """In the middle of a change that is not between neighbors: of that which is steepest, since
        a large one is to be found before many small ones."""
        wide = [one for one in self.shifts if one.between]
        if not wide or len(self.shifts) - len(wide) >= _MOST_SHIFTS:
            return None
        steepest = max(wide, key=lambda one: (one.size / len(one.between), -len(one.between)))
        return steepest.between[len(steepest.between) // 2]

    def _telling(self) -> int | None:
        """The environment that leaves least."""
        open_ones = [place for place in self.measurable if place not in self.values]
        if self.left and len(told_apart(self.left, self.measurable)) == 1:
            # More may change the number than the answers have: each factor alone is seen, too, and
            # all that the answer says.
            seen = {_pattern(self.left[0], place) for place in self.values}
            open_ones = [
                place
                for place in open_ones
                if _is_single(place) or _pattern(self.left[0], place) not in seen
            ]
        if not open_ones:
            return None
        return min(open_ones, key=self._share_left)

    def _share_left(self, environment: int) -> float:
        """What share of the answers a number there leaves, on average."""
        shares: dict[int | None, float] = defaultdict(float)
        for one in self.left:
            said = {_pattern(one, place): level for place, level in self.levels.items()}
            shares[said.get(_pattern(one, environment))] += one.weight
        return sum(share**2 for share in shares.values())

    def _basis(self) -> list[int]:
        """What the answer rests on."""
        if self.is_ordered:
            return [self.shifts[0].before, self.shifts[0].after]
        return [place for place in self.measurable if place in self.values]


def _is_single(environment: int) -> bool:
    """Whether one factor alone is new, in the order of all combinations."""
    return environment.bit_count() == 1


def _pattern(one: Hypothesis, environment: int) -> tuple[bool, ...]:
    """Which of its effects an environment has."""
    return tuple(effect[environment] for effect in one.effects)
