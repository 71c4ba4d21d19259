"""What the figures of an acceptance mean for the node: checks, and reasons to test a part again or to
return it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torchscale.features.validate.acceptance.causes import was_throttled
from torchscale.features.validate.acceptance.judge import is_suspected
from torchscale.features.validate.acceptance.limits import NODE, REFERENCES
from torchscale.features.validate.acceptance.rounds import ROUNDS_TO_STOP, undisturbed
from torchscale.schema.node.acceptance import (
    Acceptance,
    AcceptanceRun,
    Cause,
    Counter,
    FigureStatus,
    JudgedFigure,
)
from torchscale.schema.node.policy import MIN_ROUNDS, Policy
from torchscale.schema.node.validation import Disposition
from torchscale.util.interval_text import format_interval
from torchscale.util.units import format_byte_rate, format_flops, format_percent, format_rate
from torchscale.util.words import capped

GROUP = "speeds"
_TOLERATED_PER_MINUTE = {"PCIe replays": 1.0}
"""Errors that are no fault: a sound link repeats a packet now and then, and loses only its time."""
_MOST_ROUNDS_NAMED = 4
_MOST_FIGURES_NAMED = 4


@dataclass(frozen=True)
class SpeedReason:
    """Why a part is not simply kept. ``uuid``: of a GPU; ``part``: of a link; both empty for the
    node."""

    because: str
    action: str
    disposition: Disposition = Disposition.RETEST
    uuid: str = ""
    part: str = ""


def speed_reasons(
    acceptance: Acceptance, return_percent: float = Policy().return_percent
) -> Iterator[SpeedReason]:
    """Reasons of GPUs, links and the node; figures of a part with the same reason are one.

    Args:
        acceptance: What was measured, with its judged figures.
        return_percent: How far below its reference a part is returned.
    """
    run = acceptance.run
    judged = [each for each in acceptance.figures if each.rounds >= MIN_ROUNDS]
    yield from _merged(
        [_reason(each, run, return_percent) for each in judged if is_suspected(each)]
    )
    for place, each in enumerate(run.rounds):
        for problem in each.problems:
            yield SpeedReason(f"round {place + 1}: {problem}", "see the error")
    yield from _throttled(run)
    yield from _fewer_devices(acceptance)
    for counter in new_errors(run):
        if counter.uuid is None:
            continue  # an interface may be of no use to training: a check warns
        because = f"{counter.part}: {counter.after - counter.before} {counter.counter}"
        yield SpeedReason(because, "reseat the card or cable", uuid=counter.uuid)


def _throttled(run: AcceptanceRun) -> Iterator[SpeedReason]:
    """GPUs that lowered their clocks for heat or a fault, whatever their figures are."""
    found: dict[str, list[int]] = {}
    reasons: dict[str, dict[str, None]] = {}
    for it, each in enumerate(run.rounds):
        for use in each.conditions.gpus:
            if was_throttled(use):
                found.setdefault(use.uuid, []).append(it)
                reasons.setdefault(use.uuid, {}).update(dict.fromkeys(use.throttle_reasons or ()))
    for uuid, places in found.items():
        because = f"lowered its clocks in {rounds_named(places, run)}: {', '.join(reasons[uuid])}"
        yield SpeedReason(because, "check cooling and power", uuid=uuid)


def _fewer_devices(acceptance: Acceptance) -> Iterator[SpeedReason]:
    """What is not there cannot be slow."""
    if acceptance.baseline is None:
        return
    now, then = acceptance.run.world_size, acceptance.baseline.run.world_size
    if now < then:
        because = f"measured on {now} of the baseline's {then} devices or groups of cores (set-up)"
        yield SpeedReason(because, "give the job all devices and CPUs of the node")


def _merged(reasons: Sequence[_FigureReason]) -> Iterator[SpeedReason]:
    """``compute fp32 is 14 % below the baseline, training 15 %: the CPU quota …``."""
    groups: dict[tuple[object, ...], list[str]] = {}
    for each in reasons:
        key = (each.why, each.action, each.disposition, each.uuid, each.part)
        groups.setdefault(key, []).append(each.what)
    for (why, action, disposition, uuid, part), what in groups.items():
        because = ", ".join(capped(what, _MOST_FIGURES_NAMED))
        if why:
            because += f": {why}"
        yield SpeedReason(because, str(action), Disposition(disposition), str(uuid), str(part))


def missing_speeds(acceptance: Acceptance) -> Iterator[str]:
    """What the verdict does not rest on."""
    without = dict.fromkeys(
        figure.figure for figure in acceptance.figures if figure.status is FigureStatus.NO_LIMIT
    )
    if without:
        yield f"{', '.join(without)}: no limit to judge by (--baseline FILE)"
    undecided = dict.fromkeys(
        f"{figure.figure} (±{format_percent(_half_width(figure), 0)})"
        for figure in acceptance.figures
        if figure.status is FigureStatus.UNCLEAR
        and figure.rounds >= MIN_ROUNDS
        and not is_suspected(figure)
    )
    if undecided:
        yield f"{', '.join(undecided)}: too noisy to tell a loss from none (--budget)"
    for it, each in enumerate(acceptance.run.rounds):
        if each.missing:
            yield f"round {it + 1}: {', '.join(each.missing)} (it was interrupted)"


def what_to_do(
    cause: Cause | None, rounds: int, deficit: float, run: AcceptanceRun, return_percent: float
) -> Disposition:
    """Return what is low by far, because of the host, in a run that nothing disturbed; test again
    what is low otherwise.

    Args:
        cause: Of the low figure.
        rounds: Undisturbed rounds that it is from.
        deficit: How far it is below its reference, as a share.
        run: What it was measured in.
        return_percent: How far below it must be to be returned.
    """
    sound = len(undisturbed(run)) == len(run.rounds) and not any(
        each.problems for each in run.rounds
    )
    far = deficit >= return_percent / 100
    if cause is Cause.HOST and rounds >= ROUNDS_TO_STOP and far and sound:
        return Disposition.RETURN
    return Disposition.RETEST


def _half_width(figure: JudgedFigure) -> float:
    """Of the interval, as a share of the rate; 0 without one."""
    if figure.rate is None or figure.high is None:
        return 0.0
    return figure.high / figure.rate - 1


def format_value(rate: float, unit: str) -> str:
    """``4.21 TFLOP/s``, ``12.3 GB/s``, ``812/s``."""
    if unit == "FLOP/s":
        return format_flops(rate)
    if unit == "B/s":
        return format_byte_rate(rate)
    return f"{format_rate(rate)} samples/s"


def rounds_text(count: int, which: str = "") -> str:
    """``1 round``, ``3 undisturbed rounds``."""
    return f"{count} {which}round{'s' * (count != 1)}"


def levels_text(figure: JudgedFigure) -> str:
    """``1.72 GB/s in 12 rounds, 1.90 GB/s in 8``, or its only level; empty where nothing was measured."""
    if figure.modes:
        (slow, few), (fast, many) = figure.modes
        return (
            f"{format_value(slow, figure.unit)} in {few} rounds, "
            f"{format_value(fast, figure.unit)} in {many}"
        )
    if figure.rate is None:
        return ""
    if not figure.rounds:
        return f"{format_value(figure.rate, figure.unit)} in disturbed rounds"
    return f"{format_value(figure.rate, figure.unit)} in {rounds_text(figure.rounds)}"


def figure_text(figure: JudgedFigure) -> str:
    """Rate, interval and rounds; of a figure with two levels both of them."""
    if figure.modes:
        return levels_text(figure)
    if figure.rate is None:
        return "not measured"
    text = format_value(figure.rate, figure.unit)
    if figure.rounds == 0:
        return text
    interval = interval_text(figure)
    if not interval:
        return f"{text} ({rounds_text(figure.rounds, 'undisturbed ')})"
    return f"{text} (95 % interval {interval}, {figure.rounds} rounds)"


def interval_text(figure: JudgedFigure) -> str:
    """The 95 % interval of the mean of its rounds; empty without one."""
    if figure.rate is None or figure.low is None or figure.high is None:
        return ""
    return format_interval(
        figure.rate, (figure.low, figure.high), lambda end, _: format_value(end, figure.unit)
    )


def limit_text(figure: JudgedFigure) -> str:
    """``at least 12.1 GB/s: baseline node-17.json less 5 %``; empty without a limit."""
    if figure.limit is None:
        return ""
    return f"at least {format_value(figure.limit.rate, figure.unit)}: {figure.limit.basis}"


@dataclass(frozen=True)
class _FigureReason:
    """What is wrong with one figure, and why."""

    what: str
    why: str
    action: str
    disposition: Disposition
    uuid: str
    part: str


def _reason(figure: JudgedFigure, run: AcceptanceRun, return_percent: float) -> _FigureReason:
    what = f"{figure.figure} {_what(figure)}"
    if figure.part != NODE and not figure.uuids:
        what = f"{figure.figure} of {figure.part} {_what(figure)}"
    why, action, disposition = figure.because, figure.action, Disposition.RETEST
    if figure.cause in (Cause.HOST, Cause.SETUP):
        why += f" ({figure.cause.value})"
    if figure.status is FigureStatus.UNCLEAR:
        disposition, action = Disposition.UNDECIDED, action or "measure for longer (--budget)"
    uuid = part = ""
    if len(figure.uuids) == 1:
        uuid = figure.uuids[0]
        if figure.status is FigureStatus.LOW:
            disposition = what_to_do(
                figure.cause, figure.rounds, figure.deficit or 0.0, run, return_percent
            )
    elif figure.uuids:
        part = figure.part
    return _FigureReason(what, why, action or "measure again", disposition, uuid, part)


def _what(figure: JudgedFigure) -> str:
    if figure.status is FigureStatus.UNCLEAR:
        below = format_percent(figure.deficit or 0.0)
        return f"seems {below} lower, ±{format_percent(_half_width(figure))}"
    if figure.status is FigureStatus.FLAPPING:
        return f"flaps: {figure_text(figure)}"
    below = format_percent(figure.deficit or 0.0)
    if figure.limit is None:
        return "is low"
    return f"is {below} below the {REFERENCES[figure.limit.kind]}"


def rounds_named(places: Sequence[int], run: AcceptanceRun) -> str:
    """``round 3``, ``rounds 2 and 4``, ``9 of 12 rounds``."""
    if len(places) > _MOST_ROUNDS_NAMED:
        return f"{len(places)} of {len(run.rounds)} rounds"
    numbers = [str(place + 1) for place in places]
    if len(numbers) == 1:
        return f"round {numbers[0]}"
    return f"rounds {', '.join(numbers[:-1])} and {numbers[-1]}"


def new_errors(run: AcceptanceRun) -> list[Counter]:
    """Counters that went up meanwhile, and by more than chance explains."""
    minutes = max(1.0, run.seconds / 60)
    return [
        each
        for each in run.counters
        if each.after - each.before > _TOLERATED_PER_MINUTE.get(each.counter, 0.0) * minutes
    ]
