"""Answers that a bisection can have, and what each says of every environment. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

MOST_FACTORS = 4
"""All combinations of four factors are sixteen environments; more are changed one after the
other."""
_ALONE_WEIGHT = 4.0
"""A single change is that many times as likely beforehand as all answers in which several have to
do with it."""


class AnswerKind(str, Enum):
    """What an answer says."""

    STEP = "step"
    """Slow from a version on."""
    ALONE = "alone"
    """One factor decides, whatever the others are."""
    TOGETHER = "together"
    """Slow where all of some factors are new: their combination alone."""
    EITHER = "either"
    """Slow where at least one of some factors is new, and no slower with several."""
    SUM = "sum"
    """Two factors, each with a cost of its own; they add up."""


@dataclass(frozen=True)
class Hypothesis:
    """One answer.

    Attributes:
        kind: What it says.
        members: The first slow environment of a step; else the factors that decide.
        effects: For each cost of its own (two for :attr:`AnswerKind.SUM`, else one), whether each
            environment has it.
        weight: Its share beforehand.
    """

    kind: AnswerKind
    members: tuple[int, ...]
    effects: tuple[tuple[bool, ...], ...]
    weight: float

    def is_slow(self, environment: int) -> bool:
        """Whether it says that the environment is slower than the first."""
        return any(effect[environment] for effect in self.effects)


def share_of_slow(
    hypotheses: Sequence[Hypothesis], shares: Sequence[float], environment: int
) -> float:
    """The probability of all answers together that say that an environment is slow."""
    return sum(
        share for share, one in zip(shares, hypotheses, strict=True) if one.is_slow(environment)
    )


def steps(environments: int) -> tuple[Hypothesis, ...]:
    """The first slow one of environments in order, of which the first is good and the last bad."""
    places = range(1, environments)
    return tuple(
        Hypothesis(
            AnswerKind.STEP,
            (first,),
            (tuple(place >= first for place in range(environments)),),
            1 / len(places),
        )
        for first in places
    )


def combinations(factors: int) -> tuple[tuple[bool, ...], ...]:
    """All environments of some factors, each old or new: all old first, all new last."""
    return tuple(itertools.product((False, True), repeat=factors))


def factorial(factors: int) -> tuple[Hypothesis, ...]:
    """Which of the factors make the last of :func:`combinations` slower than the first."""
    environments = combinations(factors)
    single = [
        _factor_answer(AnswerKind.ALONE, (factor,), environments, _ALONE_WEIGHT / factors)
        for factor in range(factors)
    ]
    several = [
        (kind, members)
        for count in range(2, factors + 1)
        for members in itertools.combinations(range(factors), count)
        for kind in (AnswerKind.TOGETHER, AnswerKind.EITHER, AnswerKind.SUM)
        if kind is not AnswerKind.SUM or count == 2
    ]
    rest = [
        _factor_answer(kind, members, environments, 1 / len(several)) for kind, members in several
    ]
    total = sum(one.weight for one in (*single, *rest))
    return tuple(
        Hypothesis(one.kind, one.members, one.effects, one.weight / total)
        for one in (*single, *rest)
    )


def _factor_answer(
    kind: AnswerKind,
    members: tuple[int, ...],
    environments: Sequence[Sequence[bool]],
    weight: float,
) -> Hypothesis:
    if kind is AnswerKind.SUM:
        effects = tuple(tuple(bits[member] for bits in environments) for member in members)
        return Hypothesis(kind, members, effects, weight)
    decide = any if kind is AnswerKind.EITHER else all
    slow = tuple(decide(bits[member] for member in members) for bits in environments)
    return Hypothesis(kind, members, (slow,), weight)


def told_apart(
    hypotheses: Sequence[Hypothesis], environments: Sequence[int]
) -> list[list[Hypothesis]]:
    """The hypotheses in groups that say the same of these environments: no launch of them can tell
    those of a group apart."""
    groups: dict[frozenset[tuple[bool, ...]], list[Hypothesis]] = {}
    for one in hypotheses:
        # Two costs that the same environments have are one; one that none of them has is none.
        effects = (tuple(effect[place] for place in environments) for effect in one.effects)
        groups.setdefault(frozenset(filter(any, effects)), []).append(one)
    return list(groups.values())
