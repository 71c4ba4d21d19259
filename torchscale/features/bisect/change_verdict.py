"""What is known of a number that may have changed, in sentences. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Literal

from torchscale.analysis.stats.estimate import Estimate
from torchscale.features.bisect.changes import ChangeSearch
from torchscale.features.bisect.equality import Equality
from torchscale.features.bisect.hypotheses import AnswerKind, Hypothesis
from torchscale.features.bisect.mean_shift import MeanShift, has_mean
from torchscale.features.bisect.question import Question
from torchscale.features.bisect.search import BisectionEnding
from torchscale.features.bisect.verdict import members_of
from torchscale.util.interval_text import format_estimate

_MOST_DECIMALS = 17
"""More say nothing of a float."""


class ChangeSentences:
    """The sentences."""

    def __init__(self, question: Question, search: ChangeSearch, subject: str) -> None:
        """
        Args:
            question: What was asked.
            search: Launches and what they say.
            subject: What the number is called: ``The loss``.
        """
        self._question, self._search, self._subject = question, search, subject
        self._labels = [candidate.label for candidate in question.candidates]
        self._equality, self._means = search.equality, search.means

    @property
    def rule(self) -> Literal["exactly", "tolerance", "finite", "mean"] | None:
        """How it is decided; ``None`` before it is known."""
        if self._means is not None:
            return "mean"
        if self._search.same is None:
            return None
        if self._search.same.by_kind:
            return "finite"
        return "tolerance" if self._search.same.tolerance else "exactly"

    def why(self) -> str:
        """How it is decided, and why."""
        repeat = "launches of one environment repeat each other"
        scatter = "launches are to be compared by means"
        if self._search.unlike is not None:
            place, numbers = self._search.unlike
            differing = ", ".join(map(repr, dict.fromkeys(numbers)))
            scatter = f"launches of {self._labels[place]} print different numbers ({differing})"
        return {
            None: "",
            "exactly": f"Compared exactly: {repeat}, bit for bit.",
            "tolerance": f"Compared within a tolerance of {self._search.rule.tolerance:g}: {repeat} "
            "that closely.",
            "finite": f"Compared as finite or not, since one end is not: {scatter}.",
            "mean": f"Compared by means: {scatter}.",
        }[self.rule]

    def answer(self) -> list[Hypothesis]:
        """The answer; empty before it is known."""
        if self._search.ending is not BisectionEnding.FOUND:
            return []
        if self._means is not None:
            return self._means.search.answer
        return [] if self._equality is None else self._equality.answer

    def sentence(self) -> str:
        """The answer, or why there is none."""
        search, subject, answer = self._search, self._subject, self.answer()
        good, bad = self._labels[0], self._labels[-1]
        if search.ending is BisectionEnding.UNUSABLE:
            end = next(place for place in search.ends if place in search.unusable)
            return f"No answer: {self._labels[end]} {search.unusable[end]}."
        if search.ending is BisectionEnding.TWO_STATES:
            return f"No answer: launches of {good} have two levels, and a change is one of both."
        if answer:
            return f"{subject} changed {self._where(answer)}: {self._measured(answer)}."
        if search.ending is BisectionEnding.NO_DIFFERENCE:
            return self._unchanged()
        if search.unlike is not None and self._means is None and search.rule.how == "exactly":
            place, (first, *_, last) = search.unlike
            return (
                f"No answer: launches of {self._labels[place]} print different numbers, {first!r} "
                f"and {last!r}. Fix the seeds of the program, or compare with --changed mean."
            )
        if not search.confirmed:
            is_known = self._means is not None and self._is_known(self._means)
            measured = self._ends() if is_known else "too few launches"
            return f"Undecided whether {_inside(subject)} changed: {measured}."
        if self._equality is not None and self._has_none(self._equality):
            return (
                f"{subject} changed from {good} to {bad}: {self._ends()}. No answer: several of the "
                "changes have to do with it, in none of the ways that are looked for."
            )
        return f"{subject} changed from {good} to {bad}: {self._ends()}. Undecided where."

    def _unchanged(self) -> str:
        good, bad = self._labels[0], self._labels[-1]
        if self._means is not None:
            least = _by_scatter(self._means)(self._means.least)
            return (
                f"{self._subject} did not change by {least} or more: {bad} against {good} "
                f"{self._ends()}."
            )
        first, last = (self._search.values[end][0] for end in self._search.ends)
        if repr(first) == repr(last):
            return f"{self._subject} did not change: {good} and {bad} both print {first!r}."
        return (
            f"{self._subject} did not change by more than the tolerance: {good} prints {first!r}, "
            f"{bad} {last!r}."
        )

    def _where(self, answer: Sequence[Hypothesis]) -> str:
        if answer[0].kind is not AnswerKind.STEP:
            return " or ".join(
                _with_factors(one.kind, members_of(self._question, one)) for one in answer
            )
        if len(self._labels) == 2:
            return f"with {self._question.factors[0].change}"
        before, _ = self.beside(answer)
        labels = [self._labels[one.members[0]] for one in answer]
        choice = labels[0] if len(labels) == 1 else f"one of {', '.join(labels)}"
        return f"with {choice}, against {self._labels[before]}"

    def beside(self, answer: Sequence[Hypothesis]) -> tuple[int, int]:
        """The environments on either side of an answer; of factors both ends."""
        if answer[0].kind is not AnswerKind.STEP:
            return self._search.ends
        if self._means is not None:
            before, after = self._means.search.beside_answer
            return before, after
        return answer[0].members[0] - 1, answer[-1].members[0]

    def _measured(self, answer: Sequence[Hypothesis]) -> str:
        if self._means is None:
            return self._numbers(*self.beside(answer))
        search, text = self._means.search, _by_scatter(self._means)
        costs = [search.cost(effect) for effect in range(len(answer[0].effects))]
        sizes = [_size(self._means.size(cost), text) for cost in costs if cost is not None]
        if sizes:
            return " and ".join(sizes)
        slow, count = search.slow_launches([p for p in range(search.count) if answer[0].is_slow(p)])
        level = text(self._level(self._means, search.count - 1, is_high=not search.slow_is_low))
        return f"{slow} of {count} launches are at {level}"

    def _level(self, means: MeanShift, place: int, *, is_high: bool) -> float:
        """The mean of an environment's numbers in one of its two states; they may lie farther apart
        than the evidence has them."""
        threshold = means.search.modes[place].threshold
        numbers = filter(has_mean, self._search.values[place])
        return statistics.fmean(
            number for number in numbers if means.is_above(number, threshold) == is_high
        )

    @staticmethod
    def _is_known(means: MeanShift) -> bool:
        """Whether there is more than one launch of both ends: of one the evidence knows nothing."""
        return min(map(means.search.launched, means.search.ends)) > 1

    @staticmethod
    def _has_none(equality: Equality) -> bool:
        """Whether no answer fits. Of versions in order several changes are searched one by one."""
        return not equality.is_ordered and not equality.left

    def _ends(self) -> str:
        """How far both ends are apart."""
        if self._means is None:
            return self._numbers(*self._search.ends)
        return _size(self._means.size(self._means.search.difference), _by_scatter(self._means))

    def _numbers(self, before: int, after: int) -> str:
        """``2.31 → 2.32 (+0.01)``."""
        values = self._search.values
        first, last = values[before][0], values[after][0]
        difference = f" ({last - first:+.3g})" if math.isfinite(last - first) else ""
        return f"{first!r} → {last!r}{difference}"

    def notes(self) -> list[str]:
        """What else is known."""
        notes = self._notes_of_scatter()
        if self._search.ending is not BisectionEnding.FOUND:
            return notes
        if self._means is not None:
            further = self._means.search.second_step()
            if further is not None:
                pair, cost = further
                size = _size(self._means.size(cost), _by_scatter(self._means))
                notes.append(
                    f"{self._subject} changes again with {self._labels[pair.members[1]]}: {size}. "
                    "The change above is between both levels; name nearer ends to separate them."
                )
        elif self._equality is not None and self._equality.is_ordered:
            notes += self._further(self._equality)
        return notes

    def _further(self, equality: Equality) -> list[str]:
        """Changes besides the answer."""
        notes = []
        for shift in equality.shifts[1:]:
            before, after = self._labels[shift.before], self._labels[shift.after]
            numbers = self._numbers(shift.before, shift.after)
            if shift.between:
                notes.append(
                    f"{self._subject} also changes between {before} and {after}: {numbers}. Where "
                    "was not searched; --tolerance leaves small changes out."
                )
                continue
            back = f", as at {self._labels[0]}" if equality.levels[shift.after] == 0 else ""
            notes.append(
                f"{self._subject} also changes with {after}, against {before}: {numbers}{back}."
            )
        return notes

    def known(self) -> list[str]:
        """A line for each thing that is known by now."""
        lines = [self.why()] if self.rule is not None else []
        if self._search.confirmed:
            lines.append(f"{self._subject} changed between both ends.")
        search = self._search
        lines += [f"{self._labels[place]}: launches have two levels" for place in search.modes]
        return lines + [
            f"{self._labels[place]}: launches scatter more than those of the others"
            for place in sorted(search.unsteady)
        ]

    def _notes_of_scatter(self) -> list[str]:
        """Environments whose launches are not of one level."""
        if self._means is None:
            return []
        search, text = self._means.search, _by_scatter(self._means)
        ignored = "" if search.counts_slow_launches else " Its launches do not count."
        notes = [
            f"Launches of {self._labels[place]} have two levels: {modes.slow} of {modes.launches} "
            f"are at {text(self._level(self._means, place, is_high=True))}, the others at "
            f"{text(self._level(self._means, place, is_high=False))}.{ignored}"
            for place, modes in sorted(search.modes.items())
        ]
        return notes + [
            f"Launches of {self._labels[place]} scatter more than those of the others.{ignored}"
            for place in sorted(search.unsteady)
        ]


def _with_factors(kind: AnswerKind, names: Sequence[str]) -> str:
    if kind is AnswerKind.ALONE:
        return f"with {names[0]}, whatever the other changes are"
    if kind is AnswerKind.TOGETHER:
        return f"only with all of {', '.join(names)} together"
    if kind is AnswerKind.EITHER:
        return f"with each of {', '.join(names)}, and with several no further"
    return f"with {' and with '.join(names)}, each by itself"


def _inside(subject: str) -> str:
    """A subject within a sentence."""
    return subject.replace("The ", "the ", 1)


def _by_scatter(means: MeanShift) -> Callable[[float], str]:
    return number_text(means.scatter or means.least)


def number_text(scatter: float) -> Callable[[float], str]:
    """Writes numbers with two digits of what they scatter by."""
    decimals = min(max(1 - math.floor(math.log10(scatter)), 0), _MOST_DECIMALS)
    return lambda value: f"{value:.{decimals}f}"


def _size(size: Estimate, text: Callable[[float], str]) -> str:
    """``+0.041 (+0.022 to +0.060)``."""
    return format_estimate(size.value, size.ends, lambda value: f"{'+' * (value > 0)}{text(value)}")
