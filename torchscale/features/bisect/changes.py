"""The search for what changed a number: by equality where launches of an environment repeat each
other, else by their means, with the search of :mod:`torchscale.features.bisect.search`. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Literal

from torchscale.analysis.stats.estimate import Estimate
from torchscale.features.bisect.equality import REPEATS, Equality, Sameness
from torchscale.features.bisect.hypotheses import Hypothesis
from torchscale.features.bisect.mean_shift import MeanShift, has_mean
from torchscale.features.bisect.modes import Modes
from torchscale.features.bisect.search import (
    MOST_FAILURES,
    BisectionEnding,
    Limits,
)

ChangeRuleName = Literal["auto", "exactly", "mean"]


@dataclass(frozen=True)
class ChangeRule:
    """How numbers are compared.

    Attributes:
        how: ``auto``: exactly where both ends repeat themselves, else by means.
        tolerance: Up to which |a - b| / max(1, |a|) is no change, also of means. 0 for none.
    """

    how: ChangeRuleName = "auto"
    tolerance: float = 0.0


@dataclass
class ChangeSearch:
    """What changed a number, among environments ``0 … count - 1``.

    Attributes:
        hypotheses: The answers that are possible.
        count: Number of environments.
        limits: Probability of a wrong answer of means, and launches.
        rule: How numbers are compared.
        launches: Environment and number of each that gave one, in their order.
        unusable: Environment → why it cannot be launched.
        ending: How it ended; ``None`` while it goes on.
        same: Which numbers count as one; ``None`` before it is known, and for means.
        means: The comparison of means; ``None`` before it is known, and where numbers repeat.
        unlike: Numbers of an environment that do not repeat each other: why means decide.
    """

    hypotheses: tuple[Hypothesis, ...]
    count: int
    limits: Limits = field(default_factory=Limits)
    rule: ChangeRule = field(default_factory=ChangeRule)
    launches: list[tuple[int, float]] = field(default_factory=list)
    unusable: dict[int, str] = field(default_factory=dict)
    ending: BisectionEnding | None = None
    same: Sameness | None = None
    means: MeanShift | None = None
    unlike: tuple[int, tuple[float, ...]] | None = None
    _failures: Counter[int] = field(default_factory=Counter)

    @property
    def ends(self) -> tuple[int, int]:
        """The good and the bad end."""
        return 0, self.count - 1

    @property
    def values(self) -> dict[int, list[float]]:
        """Environment → its numbers, in their order."""
        found: dict[int, list[float]] = {}
        for environment, number in self.launches:
            found.setdefault(environment, []).append(number)
        return found

    @property
    def equality(self) -> Equality | None:
        """What numbers that repeat say; ``None`` where they do not, and before it is known."""
        return None if self.same is None or self.means is not None else self._equality(self.same)

    def _equality(self, same: Sameness) -> Equality:
        left_out = self.unusable.keys() - set(self.ends)
        kept = {one: found for one, found in self.values.items() if one not in left_out}
        return Equality(self.hypotheses, self.count, kept, frozenset(self.unusable), same)

    @property
    def confirmed(self) -> bool:
        """Whether the ends are known to differ."""
        if self.means is not None:
            return self.means.search.confirmed
        equality = self.equality
        return equality is not None and equality.differs

    @property
    def noise(self) -> None:
        """As a share there is none: numbers may be zero."""
        return

    @property
    def modes(self) -> Mapping[int, Modes]:
        """Environment → its two states, of means."""
        return {} if self.means is None else self.means.search.modes

    @property
    def unsteady(self) -> Set[int]:
        """Environments whose launches scatter more than those of the others, of means."""
        return frozenset() if self.means is None else self.means.search.unsteady

    def mean(self, environment: int) -> Estimate | None:
        """The mean of an environment's finite numbers; ``None`` for none."""
        finite = list(filter(has_mean, self.values.get(environment, ())))
        return Estimate.of_mean(finite) if finite else None

    def changed(self, environment: int) -> float | None:
        """The probability that an environment has another number than the good end; ``None`` where
        its launches say nothing, and before it is known that the ends differ."""
        if self.means is not None:
            search = self.means.search
            known = search.confirmed and environment in search.measurable
            return search.evidence.is_slow(environment) if known else None
        if self.equality is None or environment not in self.equality.levels:
            return None
        return float(self.equality.levels[environment] != 0)

    def launched(self, environment: int) -> int:
        """How many launches of an environment gave a number."""
        return len(self.values.get(environment, ()))

    def set_unusable(self, environment: int, reason: str) -> None:
        """An environment cannot be built or launched."""
        self.unusable[environment] = reason
        if self.means is not None:
            self.means.search.set_unusable(environment, reason)
        self._judge()

    def add_failure(self, environment: int, reason: str) -> None:
        """A launch failed."""
        self._failures[environment] += 1
        if self._failures[environment] >= MOST_FAILURES:
            self.set_unusable(environment, reason)

    def add(self, environment: int, number: float) -> None:
        """A launch gave its number."""
        self.launches.append((environment, number))
        if self.means is not None and not has_mean(number):
            self.add_failure(environment, f"printed {number:g}, which has no mean")
            return
        self._failures[environment] = 0
        if self.means is not None:
            self.means.add(environment, number)
        self._judge()

    def next_round(self) -> list[int]:
        """What to launch next, in this order; empty at the end."""
        if self.ending is not None:
            return []
        if self.means is not None:
            return self.means.search.next_round()
        equality = self.equality
        if equality is None:
            return list(self.ends)
        asked = equality.next_launch()
        return [] if asked is None else [asked]

    def _judge(self) -> None:
        """Choose the rule where both ends have repeats, and end it where the answer is known."""
        values = self.values
        if any(end in self.unusable for end in self.ends):
            self.ending = BisectionEnding.UNUSABLE
        elif self.means is not None:
            self.ending = self.means.search.ending
        elif min(len(values.get(end, ())) for end in self.ends) >= REPEATS:
            self.ending = self._by_equality()

    def _by_equality(self) -> BisectionEnding | None:
        """How it ended by equality; where launches do not repeat each other, means begin."""
        self.same = self.same or Sameness(self.rule.tolerance)
        equality = self._equality(self.same)
        if equality.unlike is not None or self.rule.how == "mean":
            if equality.unlike is not None:
                self.unlike = equality.unlike, tuple(self.values[equality.unlike])
            if self.rule.how == "exactly":
                return BisectionEnding.UNDECIDED
            # Where NaN is what changed, it repeats though numbers scatter.
            self.same = replace(self.same, by_kind=True)
            equality = self._equality(self.same)
            while equality.differs and equality.unlike not in (None, *self.ends):
                self.unusable[equality.unlike] = "printed finite numbers and others"
                equality = self._equality(self.same)
            if equality.unlike is not None or not equality.differs:
                return self._begin_means()
        if not equality.differs:
            return BisectionEnding.NO_DIFFERENCE
        if equality.next_launch() is None:
            return BisectionEnding.FOUND if equality.answer else BisectionEnding.UNDECIDED
        if len(self.launches) >= self.limits.most_launches:
            return BisectionEnding.UNDECIDED
        return None

    def _begin_means(self) -> BisectionEnding | None:
        finite = {place: list(filter(has_mean, numbers)) for place, numbers in self.values.items()}
        for end in self.ends:
            if not finite[end]:
                self.unusable[end] = f"printed {self.values[end][-1]:g}, which has no mean"
                return BisectionEnding.UNUSABLE
        good, bad = self.ends
        self.means = MeanShift(
            self.hypotheses,
            self.count,
            replace(self.limits, most_launches=self.limits.most_launches - len(self.launches)),
            (finite[good], finite[bad]),
            self.rule.tolerance * max(1.0, abs(finite[good][0])),
        )
        for environment, reason in self.unusable.items():
            self.means.search.set_unusable(environment, reason)
        return None
