"""Checks of an acceptance: of the run, of the counters of links, and of each figure over all of its parts."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.features.validate.acceptance.judge import is_suspected
from torchscale.features.validate.acceptance.rounds import disturbance, undisturbed
from torchscale.features.validate.acceptance.verdict import (
    GROUP,
    figure_text,
    limit_text,
    new_errors,
    rounds_named,
    rounds_text,
)
from torchscale.schema.node.acceptance import Acceptance, AcceptanceRun, FigureStatus, JudgedFigure
from torchscale.schema.node.check import Check, Status
from torchscale.schema.node.policy import MIN_ROUNDS, Policy

_MOST_PARTS_NAMED = 4


def speed_checks(acceptance: Acceptance, policy: Policy) -> list[Check]:
    """One check of the run, one of the counters, and one of each figure over all of its parts."""
    names = dict.fromkeys(figure.figure for figure in acceptance.figures)
    checks = [_run_check(acceptance.run, policy.rounds)]
    if acceptance.run.counters:
        checks.append(_counter_check(acceptance.run))
    return checks + [
        _figure_check(name, [each for each in acceptance.figures if each.figure == name])
        for name in names
    ]


def _run_check(run: AcceptanceRun, least: int) -> Check:
    """Whether there are ``least`` undisturbed rounds, and no launch failed."""
    count, used = len(run.rounds), len(undisturbed(run))
    seen = f"{rounds_text(count)} in {run.seconds / 60:.1f} min, {used} of them undisturbed"
    if run.ended == "interrupted":
        seen += ", interrupted"
    problems = [problem for each in run.rounds for problem in each.problems]
    status, expected, advice = Status.PASS, "", ""
    if problems:
        status, expected = Status.FAIL, "every launch ok"
        seen, advice = f"{problems[0]}; {seen}", "see the error; validate again"
    elif used < least:
        status, expected = Status.WARN, f"at least {least} undisturbed rounds"
        advice = "measure again on a quiet node" if used < count else "give it more time (--budget)"
    if used < count:
        places = [it for it in range(count) if it not in undisturbed(run)]
        seen += f"; {disturbance(run.rounds[places[0]].conditions)} in {rounds_named(places, run)}"
    return Check(
        id="speed_rounds",
        group=GROUP,
        title="acceptance",
        status=status,
        seen=seen,
        expected=expected,
        advice=advice,
    )


def _counter_check(run: AcceptanceRun) -> Check:
    new = new_errors(run)
    status, expected, advice = Status.PASS, "", ""
    seen = f"none new of {len(run.counters)} counters"
    if new:
        status, expected, advice = Status.WARN, "none new", "reseat the card or cable"
        seen = "; ".join(
            f"{each.part}: {each.after - each.before} {each.counter}" for each in new[:8]
        )
    return Check(
        id="speed_counters",
        group=GROUP,
        title="errors of links meanwhile",
        status=status,
        seen=seen,
        expected=expected,
        advice=advice,
    )


_STATUSES = {
    FigureStatus.LOW: Status.FAIL,
    FigureStatus.FLAPPING: Status.FAIL,
    FigureStatus.UNCLEAR: Status.WARN,
    FigureStatus.WITHIN: Status.PASS,
    FigureStatus.NO_LIMIT: Status.NOT_APPLICABLE,
}
"""From the gravest to the best."""


def _figure_check(name: str, parts: Sequence[JudgedFigure]) -> Check:
    """The gravest part of a figure; of equally grave ones the slowest. What has too few rounds is
    not judged: the check of the rounds says why."""
    order = list(_STATUSES)
    worst = min(
        parts,
        key=lambda part: (not is_suspected(part), order.index(part.status), part.rate or 0.0),
    )
    status, seen = _STATUSES[worst.status], figure_text(worst)
    if worst.status is FigureStatus.FLAPPING and worst.limit is None:
        status = Status.WARN  # it is to be looked at again; what no limit judges fails no node
    alike = [part.part for part in parts if part.status is worst.status]
    if is_suspected(worst) and len(alike) < len(parts):
        seen += f" on {_listed(alike)} of {len(parts)}"
    elif len(parts) > 1:
        seen += f" on {worst.part}, the slowest of {len(alike)}"
    if worst.cause is not None:
        seen += f"; cause: {worst.cause.value}"
    elif worst.because:
        seen += f"; {worst.because}"
    if worst.rounds < MIN_ROUNDS or (status is Status.WARN and not is_suspected(worst)):
        status = Status.NOT_APPLICABLE
    return Check(
        id=f"speed_{name.replace(' ', '_').replace('-', '_')}",
        group=GROUP,
        title=name,
        status=status,
        seen=seen,
        expected=limit_text(worst),
        advice=worst.action,
    )


def _listed(parts: Sequence[str]) -> str:
    """``GPU 1, GPU 5 and 3 more``; the slowest of them is what the rate is of."""
    if len(parts) <= _MOST_PARTS_NAMED:
        return ", ".join(parts)
    return f"{', '.join(parts[:_MOST_PARTS_NAMED])} and {len(parts) - _MOST_PARTS_NAMED} more"
