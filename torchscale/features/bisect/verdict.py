"""What a bisection found, in a sentence and as data. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchscale.analysis.stats.estimate import Estimate, from_log
from torchscale.features.bisect.changes import ChangeSearch
from torchscale.features.bisect.environment import Candidate
from torchscale.features.bisect.export_schema import (
    BisectionExport,
    CostExport,
    EnvironmentExport,
    EnvironmentState,
    ModesExport,
)
from torchscale.features.bisect.hypotheses import AnswerKind, Hypothesis
from torchscale.features.bisect.launcher import LaunchMetric
from torchscale.features.bisect.question import Question
from torchscale.features.bisect.search import BisectionEnding, BisectionSearch
from torchscale.features.bisect.state import LaunchEntry
from torchscale.util.interval_text import format_estimate
from torchscale.util.units import format_change, format_percent

NOT_BUILT = "could not be built"
"""What the reason of an environment begins with where its build failed."""


def describe(
    question: Question,
    search: BisectionSearch,
    metric: LaunchMetric,
    *,
    interrupted: bool,
    launches: Sequence[LaunchEntry],
    command: str,
) -> BisectionExport:
    """Everything that is known.

    Args:
        question: What was asked.
        search: Launches and what they say.
        metric: What launches are judged by.
        interrupted: Whether the user ended it.
        launches: All of them.
        command: The line that gives this again.
    """
    ending = search.ending or BisectionEnding.UNDECIDED
    is_found = search.ending is BisectionEnding.FOUND
    answer = search.answer if is_found else []
    costs = _costs(question, search, answer)
    difference = None
    if min(map(search.launched, search.ends)) > 1:
        difference = _cost(question.candidates[-1].label, search.difference)
    return BisectionExport(
        ending="interrupted" if interrupted else ending.value,
        verdict=_sentence(question, search, costs, difference),
        kind=answer[0].kind.value if answer else None,
        answers=tuple(members_of(question, one) for one in answer),
        costs=tuple(costs),
        difference=difference,
        error_probability=search.limits.alpha,
        at_least=search.limits.at_least,
        metric=metric.name,
        unit=metric.unit,
        noise=search.noise,
        environments=tuple(
            _environment(place, candidate, search, metric)
            for place, candidate in enumerate(question.candidates)
        ),
        notes=tuple(_notes(question, search)),
        launches=len(launches),
        seconds=math.fsum(entry.seconds for entry in launches),
        command=command,
    )


def _cost(what: str, cost: Estimate) -> CostExport:
    low, high = cost.bounds
    return CostExport(what=what, ratio=cost.value, low=low, high=high)


def members_of(question: Question, one: Hypothesis) -> tuple[str, ...]:
    """The first slow environment, or the factors."""
    if one.kind is AnswerKind.STEP:
        return (question.candidates[one.members[0]].label,)
    return tuple(question.factors[member].change for member in one.members)


def _costs(
    question: Question, search: BisectionSearch, answer: Sequence[Hypothesis]
) -> list[CostExport]:
    """What the answer costs; nothing where slow launches were counted."""
    if not answer:
        return []
    names: Sequence[str] = members_of(question, answer[0])
    if answer[0].kind is not AnswerKind.SUM:
        names = [" and ".join(names)]
    costs = [(name, search.cost(effect)) for effect, name in enumerate(names)]
    return [_cost(name, cost) for name, cost in costs if cost is not None]


def _sentence(
    question: Question,
    search: BisectionSearch,
    costs: Sequence[CostExport],
    difference: CostExport | None,
) -> str:
    good, bad = question.candidates[0].label, question.candidates[-1].label
    measured = "" if difference is None else _shown(difference)
    if search.ending is BisectionEnding.FOUND:
        return _found(question, search, costs)
    if search.ending is BisectionEnding.NO_DIFFERENCE:
        return (
            f"{bad} is not slower than {good} by {format_percent(search.limits.at_least)} or more: "
            f"{measured}."
        )
    if search.ending is BisectionEnding.UNUSABLE:
        end = next(place for place in search.ends if place in search.unusable)
        label = question.candidates[end].label
        return f"No answer: {label} {search.unusable[end]}."
    if search.ending is BisectionEnding.TWO_STATES:
        return (
            f"No answer: {good} itself has two states, so that what is slow is not known. Make its "
            "launches alike first, or name another good end."
        )
    if not search.confirmed:
        return f"Undecided whether {bad} is slower than {good}: {measured or 'too few launches'}."
    left = " or ".join(", ".join(members_of(question, group[0])) for group in search.groups[:4])
    more = " …" * (len(search.groups) > 4)
    return f"{bad} is slower than {good}: {measured}. Undecided what it comes from: {left}{more}."


def _found(question: Question, search: BisectionSearch, costs: Sequence[CostExport]) -> str:
    answer = search.answer
    kind = answer[0].kind
    if kind is AnswerKind.SUM:
        parts = " and ".join(f"{one.what} {_shown(one)}" for one in costs)
        return f"Each makes it slower, and their costs add up: {parts}."
    measured = _shown(costs[0]) if costs else _slow_launches(search)
    if kind is AnswerKind.STEP:
        return _step(question, search, measured)
    listed = [_of_factors(one.kind, members_of(question, one)) for one in answer]
    if len(listed) > 1:
        choice = " or ".join(listed)
        return f"Slower: {measured}. No environment whose launches count tells apart: {choice}."
    return f"{listed[0][0].upper()}{listed[0][1:]}: {measured}."


def _slow_launches(search: BisectionSearch) -> str:
    """``11 of 27 launches take 31.0 % longer, and 0 of 25 otherwise``."""
    answer, environments = search.answer[0], range(search.count)
    slow, count = search.slow_launches([one for one in environments if answer.is_slow(one)])
    before, others = search.slow_launches([one for one in environments if not answer.is_slow(one)])
    longer = format_percent(search.modes[search.count - 1].ratio)
    return f"{slow} of {count} launches take {longer} longer, and {before} of {others} otherwise"


def _of_factors(kind: AnswerKind, names: Sequence[str]) -> str:
    if kind is AnswerKind.ALONE:
        return f"{names[0]} makes it slower, whatever the other changes are"
    if kind is AnswerKind.TOGETHER:
        return f"slower only with all of {', '.join(names)} together"
    if kind is AnswerKind.EITHER:
        return f"each of {', '.join(names)} makes it slower, and several no more than one"
    return f"{' and '.join(names)} each cost something"


def _step(question: Question, search: BisectionSearch, measured: str) -> str:
    labels = [question.candidates[one.members[0]].label for one in search.answer]
    before, after = (question.candidates[place].label for place in search.beside_answer)
    slower = "Launches with two states" if search.counts_slow_launches else "Slower"
    if len(question.candidates) == 2:
        return f"{slower} with {question.factors[0].change}: {measured}."
    if len(labels) == 1:
        return f"{slower} since {labels[0]}, against {before}: {measured}."
    return (
        f"{slower} since one of {', '.join(labels)}: {measured}, from {before} to {after}. What "
        "lies between could not be told apart."
    )


def _shown(cost: CostExport) -> str:
    return format_estimate(cost.ratio, (cost.low, cost.high), format_change)


def _environment(
    place: int, candidate: Candidate, search: BisectionSearch, metric: LaunchMetric
) -> EnvironmentExport:
    logs = search.logs(place)
    sign = -1 if metric.higher_is_better else 1
    mean = low = high = None
    if logs:
        shown = Estimate.of_mean([sign * log for log in logs]).through(from_log)
        mean, low, high = shown.value, shown.low, shown.high
    slow = None
    if search.confirmed and place in search.measurable:
        slow = search.evidence.is_slow(place)
    modes = search.modes.get(place)
    two_states = None
    if modes is not None:
        two_states = ModesExport(slow=modes.slow, launches=modes.launches, ratio=modes.ratio)
    return EnvironmentExport(
        label=candidate.label,
        requirements=candidate.environment.requirements,
        revision=candidate.environment.revision,
        variables=dict(candidate.environment.variables),
        state=state_of(place, search),
        reason=search.unusable.get(place, ""),
        launches=len(logs),
        mean=mean,
        low=low,
        high=high,
        slow=slow,
        modes=two_states,
    )


def state_of(place: int, search: BisectionSearch | ChangeSearch) -> EnvironmentState:
    """How it is with an environment."""
    if place in search.unusable:
        return "not built" if search.unusable[place].startswith(NOT_BUILT) else "failed"
    if place in search.modes:
        return "two states"
    if place in search.unsteady:
        return "unsteady"
    return "ok" if search.launched(place) else "not launched"


def _notes(question: Question, search: BisectionSearch) -> list[str]:
    labels = [candidate.label for candidate in question.candidates]
    ignored = "" if search.counts_slow_launches else " Its launches do not count."
    notes = [
        f"{labels[place]} has two states: {modes.slow} of {modes.launches} launches take "
        f"{format_percent(modes.ratio)} longer.{ignored}"
        for place, modes in sorted(search.modes.items())
    ]
    notes += [
        f"Launches of {labels[place]} scatter more than those of the others: two states that "
        f"{search.launched(place)} launches do not tell apart, or more noise.{ignored}"
        for place in sorted(search.unsteady)
    ]
    further = search.second_step() if search.ending is BisectionEnding.FOUND else None
    if further is not None:
        pair, cost = further
        notes.append(
            f"There is a further step at {labels[pair.members[1]]}: "
            f"{cost.text(format_change)}. The cost above is "
            "between both levels; name nearer ends to separate them."
        )
    return notes
