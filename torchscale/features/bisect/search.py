"""What to launch next, and when a bisection has its answer. Pure: it asks for launches and starts
none, so that the launches of an earlier session bring it to where that one was."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from torchscale.analysis.stats.estimate import Estimate
from torchscale.features.bisect.evidence import BisectionEvidence, Launched
from torchscale.features.bisect.hypotheses import AnswerKind, Hypothesis, told_apart
from torchscale.features.bisect.modes import Modes, has_outlier, is_of_machine, split, two_modes
from torchscale.features.bisect.slow_share import Judged, SlowShares
from torchscale.features.bisect.states import weigh

FIRST_ROUNDS = 3
"""Launches of both ends before their difference is judged."""
LAST_LAUNCHES = 12
"""Launches of the environments on either side of the answer before it is given. Of two states of
equal probability eight launches show one alone once in 128 times, and more often right where the
first launches led to the answer; in simulations twelve halve the answers that this makes wrong."""
MOST_LAST_LAUNCHES = 24
"""Of an environment that may have two states: a launch far from its others, or launches that scatter
as if. Two states of equal probability, 4.5 times the noise apart, are then told apart in 70 % of
environments, and in the others known to scatter more."""
_CERTAIN = 0.02
"""Probability up to which an environment counts as known, and is launched for comparison alone."""
MOST_FAILURES = 2
"""Launches that fail one after the other, before the environment counts as one that fails."""


class BisectionEnding(str, Enum):
    """How a bisection ended."""

    FOUND = "found"
    """One answer is left, or several that no launch can tell apart."""
    NO_DIFFERENCE = "no difference"
    """The bad end is not slower by what was asked for."""
    UNUSABLE = "unusable"
    """An end cannot be built or fails."""
    TWO_STATES = "two states"
    """The good end has two states itself: what is slow is not known."""
    UNDECIDED = "undecided"
    """Launches or time ran out."""


@dataclass(frozen=True)
class Limits:
    """What a bisection looks for, and how long.

    Attributes:
        alpha: Probability of a wrong answer, at most.
        at_least: Smallest cost that matters, as a share.
        most_launches: That count, of all environments together.
        either_way: Whether a cost below none matters too: a number may fall as well as rise.
        beyond: Cost up to which the ends are not known to differ.
    """

    alpha: float = 0.05
    at_least: float = 0.03
    most_launches: int = 200
    either_way: bool = False
    beyond: float = 0.0


@dataclass
class BisectionSearch:
    """A bisection of environments ``0 … count - 1``, of which the first is good and the last bad.

    Attributes:
        hypotheses: The answers that are possible.
        count: Number of environments.
        limits: What is looked for.
        launches: Those that count, in their order.
        unusable: Environment → why it cannot be launched.
        modes: Environment → its two states.
        unsteady: Environments between the ends whose launches scatter more than those of the
            others: two states that are not told apart, or more noise. They do not count either.
        confirmed: Whether the bad end is known to be slower.
        ending: How it ended; ``None`` while it goes on.
    """

    hypotheses: tuple[Hypothesis, ...]
    count: int
    limits: Limits = field(default_factory=Limits)
    launches: list[Launched] = field(default_factory=list)
    unusable: dict[int, str] = field(default_factory=dict)
    modes: dict[int, Modes] = field(default_factory=dict)
    unsteady: set[int] = field(default_factory=set)
    confirmed: bool = False
    ending: BisectionEnding | None = None
    _failures: Counter[int] = field(default_factory=Counter)
    _evidence: BisectionEvidence | SlowShares | None = None

    @property
    def ends(self) -> tuple[int, int]:
        """The good and the bad end."""
        return 0, self.count - 1

    def set_unusable(self, environment: int, reason: str) -> None:
        """An environment cannot be built."""
        self.unusable[environment] = reason
        self._evidence = None
        self._judge()

    def add_failure(self, environment: int, reason: str) -> None:
        """A launch failed."""
        self._failures[environment] += 1
        if self._failures[environment] >= MOST_FAILURES:
            self.set_unusable(environment, reason)

    def add(self, environment: int, seconds: float) -> None:
        """A launch gave its figure, in seconds or in any unit of which less is better."""
        self._failures[environment] = 0
        self.launches.append(Launched(environment, math.log(seconds)))
        self._evidence = None
        self._look_for_states(environment)
        self._judge()

    def _look_for_states(self, environment: int) -> None:
        others = self._other_logs(environment)
        found = two_modes(self.logs(environment), self.limits.at_least, others)
        if found is not None and not is_of_machine(found, others):
            self.modes[environment] = found
        elif self._is_unsteady(environment, others):
            self.unsteady.add(environment)
            self._evidence = None

    def _is_unsteady(self, environment: int, others: Sequence[Sequence[float]]) -> bool:
        """Whether it scatters more than others do, after as many launches as it may have."""
        logs = self.logs(environment)
        if environment in self.ends or len(logs) < MOST_LAST_LAUNCHES:
            return False
        weighed = weigh(logs, others, self._beside(environment))
        if weighed is None or not weighed.is_unsteady:
            return False
        return not is_of_machine(split(logs, (weighed.low + weighed.high) / 2), others)

    def _beside(self, environment: int) -> list[float]:
        """Launches of the others that are at its level by the most likely answer."""
        effects = self.answer[0].effects
        beside = [
            place
            for place in range(self.count)
            if all(effect[place] == effect[environment] for effect in effects)
        ]
        kept = set(beside) - self._left_out - {environment}
        return [launch.log for launch in self.launches if launch.environment in kept]

    @property
    def _left_out(self) -> set[int]:
        """Environments whose mean is that of no single state."""
        return self.modes.keys() | self.unsteady

    def _other_logs(self, environment: int) -> list[list[float]]:
        """Of all others that were launched and have one state."""
        others = [
            self.logs(place)
            for place in range(self.count)
            if place != environment and place not in self._left_out
        ]
        return [logs for logs in others if logs]

    def logs(self, environment: int) -> list[float]:
        """Logarithms of an environment's launches."""
        return [launch.log for launch in self.launches if launch.environment == environment]

    def launched(self, environment: int) -> int:
        """How many launches of an environment count."""
        return len(self.logs(environment))

    @property
    def counts_slow_launches(self) -> bool:
        """Whether the bad end has two states and the good end one: then the question is from where
        on launches can be slow."""
        good, bad = self.ends
        return bad in self.modes and good not in self.modes

    @property
    def evidence(self) -> BisectionEvidence | SlowShares:
        """What all launches say, but for those of environments with two states, or unsteady ones,
        where the bad end has one state."""
        if self._evidence is None:
            self._evidence = self._slow_shares(self.launches)
            if not self.counts_slow_launches:
                kept = [one for one in self.launches if one.environment not in self._left_out]
                self._evidence = self._of(kept)
        return self._evidence

    @property
    def noise(self) -> float | None:
        """Standard deviation of a launch as a share, of environments with one state; ``None``
        where none was launched twice."""
        kept = [one for one in self.launches if one.environment not in self._left_out]
        return self._of(kept).noise

    @property
    def slow_is_low(self) -> bool:
        """Whether the lower of the bad end's two states is the one that the good end has not."""
        modes, good = self.modes.get(self.count - 1), self.logs(0)
        if not self.limits.either_way or modes is None or not good:
            return False
        return float(np.median(good)) > modes.threshold

    def slow_launches(self, environments: Sequence[int]) -> tuple[int, int]:
        """Of some environments: slow launches, and all; by the two states of the bad end."""
        judged = [one for one in self._judged(self.launches) if one.environment in environments]
        return sum(one.is_slow for one in judged), len(judged)

    def _slow_shares(self, launches: Sequence[Launched]) -> SlowShares:
        single = [one for one in self.hypotheses if one.kind is not AnswerKind.SUM]
        return SlowShares(single, self._judged(launches), self.limits.alpha / 2)

    def _judged(self, launches: Sequence[Launched]) -> list[Judged]:
        modes = self.modes.get(self.count - 1)
        threshold = math.inf if modes is None else modes.threshold
        sign = -1 if self.slow_is_low else 1
        return [Judged(one.environment, sign * (one.log - threshold) > 0) for one in launches]

    @property
    def difference(self) -> Estimate:
        """What the bad end costs over the good one (the ratio minus 1), from launches of both
        alone."""
        kept = [one for one in self.launches if one.environment in self.ends]
        ends = BisectionEvidence(self.hypotheses[:1], kept, self.limits.alpha / 2, self._least_cost)
        return ends.cost(self.hypotheses[0])

    def cost(self, effect: int = 0) -> Estimate | None:
        """What the answer costs, one of two where they add up; ``None`` where slow launches are
        counted. A single cost is that between both ends too, and both intervals hold."""
        evidence = self.evidence
        if isinstance(evidence, SlowShares):
            return None
        cost = evidence.cost(self.answer[0], effect)
        if len(self.answer[0].effects) > 1:
            return cost
        ends = self.difference
        (low, high), (least, most) = cost.bounds, ends.bounds
        low, high = max(low, least), min(high, most)
        if not self.limits.either_way:
            low = max(low, 0.0)
        if low > high:  # no single cost: there is more than the answer says
            return cost
        return Estimate(min(max(cost.value, low), high), low, high, cost.count)

    @property
    def _least_cost(self) -> float:
        return math.log1p(self.limits.at_least)

    def _of(self, launches: Sequence[Launched]) -> BisectionEvidence:
        return BisectionEvidence(self.hypotheses, launches, self.limits.alpha / 2, self._least_cost)

    @property
    def groups(self) -> list[list[Hypothesis]]:
        """The answers that are left, those together that no launch can tell apart."""
        return told_apart(self.evidence.left, self.measurable)

    @property
    def answer(self) -> list[Hypothesis]:
        """The most likely of :attr:`groups`."""
        evidence = self.evidence
        share = dict(zip(evidence.hypotheses, evidence.shares, strict=True))
        return max(self.groups, key=lambda group: sum(share[one] for one in group))

    @property
    def measurable(self) -> list[int]:
        """Environments whose launches can say something."""
        without = set(self.unusable)
        if not self.counts_slow_launches:
            without |= self._left_out
        return [place for place in range(self.count) if place not in without]

    def next_round(self) -> list[int]:
        """What to launch next, in this order; empty at the end."""
        if self.ending is not None:
            return []
        asked = list(self.ends)
        if self.confirmed:
            asked = self._last_launches() or self._question()
        np.random.default_rng(len(self.launches)).shuffle(asked)
        return asked

    def _question(self) -> list[int]:
        """The environment of which least is known, and one to compare it with."""
        slow = {place: self.evidence.is_slow(place) for place in self.measurable}
        open_ones = [place for place in slow if _CERTAIN < slow[place] < 1 - _CERTAIN]
        groups = self.groups
        telling = [place for place in slow if _tells(groups, place)]
        asked = min(open_ones or telling, key=lambda place: abs(slow[place] - 0.5))
        good = [place for place in slow if slow[place] <= _CERTAIN and place != asked]
        bad = [place for place in slow if slow[place] >= 1 - _CERTAIN and place != asked]
        nearest = [
            max(good, key=lambda place: (slow[place], place), default=0),
            min(bad, key=lambda place: (slow[place], place), default=self.count - 1),
        ]
        return [asked, min(nearest, key=self.launched)]

    def _last_launches(self) -> list[int]:
        """What is launched once more before the answer is given."""
        if len(self.groups) > 1:
            return []
        return [place for place in self.beside_answer if self._needs_more(place)]

    def _needs_more(self, environment: int) -> bool:
        """Whether an environment beside the answer may have a second state that few launches
        showed."""
        logs = self.logs(environment)
        if len(logs) < LAST_LAUNCHES:
            return True
        if self.counts_slow_launches or len(logs) >= MOST_LAST_LAUNCHES:
            return False
        weighed = weigh(logs, self._other_logs(environment))
        may_be_two = weighed is not None and weighed.is_open
        return may_be_two or has_outlier(logs, self.limits.at_least)

    @property
    def beside_answer(self) -> list[int]:
        """The measurable environments next to the answer, on either side: of a step the last good
        and the first slow one, else all."""
        answer = self.answer
        if answer[0].kind is not AnswerKind.STEP:
            return self.measurable
        first, last = answer[0].members[0], answer[-1].members[0]
        before = [place for place in self.measurable if place < first]
        after = [place for place in self.measurable if place >= last]
        return [before[-1], after[0]]

    def second_step(self) -> tuple[Hypothesis, Estimate] | None:
        """A further step beside that of the answer, where launches say that there is one: two
        steps are that much likelier than one; with the cost of the further one."""
        (one, *_), others = self.answer, told_apart(self.hypotheses, self._seen)
        if one.kind is not AnswerKind.STEP or self.counts_slow_launches:
            return None
        pairs = [
            Hypothesis(
                AnswerKind.SUM,
                (*one.members, *group[0].members),
                one.effects + group[0].effects,
                1.0,
            )
            for group in others
            if one not in group
        ]
        if not pairs:
            return None
        kept = [one for one in self.launches if one.environment not in self._left_out]
        weighed = [
            Hypothesis(pair.kind, pair.members, pair.effects, 0.5 / len(pairs)) for pair in pairs
        ]
        alone = Hypothesis(one.kind, one.members, one.effects, 0.5)
        evidence = BisectionEvidence((alone, *weighed), kept, self.limits.alpha, self._least_cost)
        if alone in evidence.left:
            return None
        share = dict(zip(evidence.hypotheses, evidence.shares, strict=True))
        likeliest = max(weighed, key=lambda pair: share[pair])
        return likeliest, evidence.cost(likeliest, 1)

    @property
    def _seen(self) -> list[int]:
        """Environments with launches that count."""
        return [place for place in self.measurable if self.launched(place)]

    def _judge(self) -> None:
        """End it where that is known."""
        self.ending = self._ending()

    def _ending(self) -> BisectionEnding | None:
        good, bad = self.ends
        if good in self.unusable or bad in self.unusable:
            return BisectionEnding.UNUSABLE
        if good in self.modes:
            return BisectionEnding.TWO_STATES
        enough = min(map(self.launched, self.ends)) >= FIRST_ROUNDS
        if enough and self.counts_slow_launches:
            ends = [one for one in self.launches if one.environment in self.ends]
            self.confirmed = self._slow_shares(ends).differ()
        elif enough and not self.confirmed:
            low, high = self.difference.bounds
            if self.limits.either_way:  # a fall counts as the rise that takes it back
                low, high = max(low, 1 / (1 + high) - 1), max(high, 1 / (1 + low) - 1)
            self.confirmed = low > self.limits.beyond
            if not self.confirmed and high < self.limits.at_least:
                return BisectionEnding.NO_DIFFERENCE
        if self.confirmed and len(self.groups) <= 1 and not self._last_launches():
            return BisectionEnding.FOUND
        if len(self.launches) >= self.limits.most_launches:
            return BisectionEnding.UNDECIDED
        return None


def _tells(groups: Sequence[Sequence[Hypothesis]], environment: int) -> bool:
    """Whether the answers that are left say different things of an environment."""
    said = {tuple(effect[environment] for effect in group[0].effects) for group in groups}
    return len(said) > 1
