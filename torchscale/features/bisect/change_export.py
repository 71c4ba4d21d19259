"""What is known of a number that may have changed, as data. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchscale.features.bisect.change_verdict import ChangeSentences
from torchscale.features.bisect.changes import ChangeSearch
from torchscale.features.bisect.environment import Candidate
from torchscale.features.bisect.export_schema import (
    BisectionExport,
    ChangeExport,
    EnvironmentExport,
    ShiftExport,
)
from torchscale.features.bisect.mean_shift import MeanShift
from torchscale.features.bisect.printed import PrintedNumber
from torchscale.features.bisect.question import Question
from torchscale.features.bisect.search import BisectionEnding
from torchscale.features.bisect.state import LaunchEntry
from torchscale.features.bisect.verdict import members_of, state_of


def describe_change(
    question: Question,
    search: ChangeSearch,
    number: PrintedNumber,
    *,
    interrupted: bool,
    launches: Sequence[LaunchEntry],
    command: str,
) -> BisectionExport:
    """Everything that is known.

    Args:
        question: What was asked.
        search: Launches and what they say.
        number: What was read.
        interrupted: Whether the user ended it.
        launches: All of them.
        command: The line that gives this again.
    """
    told = ChangeSentences(question, search, number.subject)
    ending, answer = search.ending or BisectionEnding.UNDECIDED, told.answer()
    return BisectionExport(
        ending="interrupted" if interrupted else ending.value,
        verdict=told.sentence(),
        kind=answer[0].kind.value if answer else None,
        answers=tuple(members_of(question, one) for one in answer),
        costs=(),
        difference=None,
        error_probability=search.limits.alpha,
        at_least=search.limits.at_least,
        metric=number.name,
        unit="",
        noise=None,
        environments=tuple(
            _environment(place, one, search) for place, one in enumerate(question.candidates)
        ),
        notes=tuple(told.notes()),
        launches=len(launches),
        seconds=math.fsum(entry.seconds for entry in launches),
        command=command,
        change=_change(question, search, told, number.name),
    )


def _change(
    question: Question, search: ChangeSearch, told: ChangeSentences, name: str
) -> ChangeExport:
    least = scatter = None
    if search.means is not None:
        least, scatter = search.means.least, search.means.scatter
    return ChangeExport(
        what=name,
        rule=told.rule,
        why=told.why(),
        tolerance=search.rule.tolerance,
        least=least,
        scatter=scatter,
        shifts=tuple(_shifts(question, search, told)),
    )


def _shifts(question: Question, search: ChangeSearch, told: ChangeSentences) -> list[ShiftExport]:
    answer, labels = told.answer(), [one.label for one in question.candidates]
    if not answer:
        return []
    beside = told.beside(answer)
    if search.means is not None:
        return [_mean_shift(labels, search, search.means, beside)]
    places = [beside]
    if search.equality is not None and search.equality.is_ordered:
        places = [(one.before, one.after) for one in search.equality.shifts]
    return [_shift(labels, search, before, after) for before, after in places]


def _shift(labels: Sequence[str], search: ChangeSearch, before: int, after: int) -> ShiftExport:
    first, last = search.values[before][0], search.values[after][0]
    difference = last - first
    return ShiftExport(
        against=labels[before],
        since=labels[after],
        before=repr(first),
        after=repr(last),
        difference=difference if math.isfinite(difference) else None,
        low=None,
        high=None,
    )


def _mean_shift(
    labels: Sequence[str], search: ChangeSearch, means: MeanShift, beside: tuple[int, int]
) -> ShiftExport:
    before, after = (search.mean(place) for place in beside)
    cost = means.search.cost()
    difference = low = high = None
    if cost is not None:
        size = means.size(cost)
        difference, low, high = size.value, size.low, size.high
    return ShiftExport(
        against=labels[beside[0]],
        since=labels[beside[1]],
        before="" if before is None else repr(before.value),
        after="" if after is None else repr(after.value),
        difference=difference,
        low=low,
        high=high,
    )


def _environment(place: int, candidate: Candidate, search: ChangeSearch) -> EnvironmentExport:
    numbers = search.values.get(place, [])
    mean = low = high = level = None
    if search.means is not None:
        found = search.mean(place)
        if found is not None:
            mean, low, high = found.value, found.low, found.high
    elif search.equality is not None:
        level = search.equality.levels.get(place)
    return EnvironmentExport(
        label=candidate.label,
        requirements=candidate.environment.requirements,
        revision=candidate.environment.revision,
        variables=dict(candidate.environment.variables),
        state=state_of(place, search),
        reason=search.unusable.get(place, ""),
        launches=len(numbers),
        mean=mean,
        low=low,
        high=high,
        slow=search.changed(place),
        modes=None,
        numbers=tuple(dict.fromkeys(map(repr, numbers))),
        level=level,
    )
