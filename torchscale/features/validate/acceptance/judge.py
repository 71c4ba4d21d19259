"""The figures of an acceptance: within their limit, low, unclear or flapping, each with its interval
and what that rests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchscale.analysis.stats.estimate import Estimate, from_log, geometric_half_width
from torchscale.analysis.training.flags import OTHER_PROCESSES_LIMIT
from torchscale.features.validate.acceptance.causes import (
    CauseQuestion,
    Explanation,
    explain,
    known_splits,
)
from torchscale.features.validate.acceptance.estimates import (
    MIN_ROUNDS,
    Mode,
    log_level,
    modes,
    split,
)
from torchscale.features.validate.acceptance.limits import (
    DISK,
    Held,
    held_against,
    held_against_peers,
)
from torchscale.features.validate.acceptance.peers import FAMILY_ERROR
from torchscale.schema.node.acceptance import (
    AcceptanceRun,
    Baseline,
    Cause,
    Conditions,
    FigureStatus,
    JudgedFigure,
    Series,
)
from torchscale.util.units import format_percent

NARROW = 0.02
"""Half of a figure's 95 % interval from which on there is no need for further rounds: a loss of 5 %,
the least that a baseline calls low, then lies more than twice as far off."""
ROUNDS_TO_STOP = 5
"""Rounds before narrow intervals end an acceptance: three may agree by chance."""


def disturbance(conditions: Conditions) -> str:
    """What of other programs disturbed a round; empty where nothing did."""
    share = conditions.foreign_share or 0.0
    if share > OTHER_PROCESSES_LIMIT:
        return f"other processes had {format_percent(share, 0)} of the cores' time"
    if conditions.shared_gpus:
        return "other processes computed on its GPUs"
    return ""


def undisturbed(run: AcceptanceRun) -> tuple[int, ...]:
    """Places of the rounds that figures are judged by."""
    return tuple(it for it, each in enumerate(run.rounds) if not disturbance(each.conditions))


def is_narrow(run: AcceptanceRun) -> bool:
    """Whether every figure's interval is narrow enough to judge."""
    rounds = undisturbed(run)
    if len(rounds) < ROUNDS_TO_STOP:
        return False
    widest = widest_interval(run)
    return widest is not None and widest[1] <= NARROW


def widest_interval(run: AcceptanceRun) -> tuple[Series, float] | None:
    """The figure with the widest interval over the undisturbed rounds, and half of it; ``None``
    where a figure has none yet. The disk is left out: its noise is that of everybody who uses it,
    and more rounds do not make it narrow."""
    rounds = undisturbed(run)
    widths = []
    for series in run.series:
        if series.figure.startswith(DISK):
            continue
        values = _values(series, rounds)
        half = geometric_half_width(values)
        if half is None:
            return None
        widths.append((half, series))
    if not widths:
        return None
    half, series = max(widths, key=lambda width: width[0])
    return series, half


def judge(
    run: AcceptanceRun, baseline: Baseline | None, power_limits: Mapping[str, float]
) -> tuple[JudgedFigure, ...]:
    """Every figure of a run.

    Args:
        run: What was measured.
        baseline: An earlier acceptance, if it is held against one.
        power_limits: Watts of each GPU, by UUID.
    """
    rounds = undisturbed(run)
    values = [_values(series, rounds) for series in run.series]
    levels = {
        place: log_level(known) for place, known in enumerate(values) if len(known) >= MIN_ROUNDS
    }
    tests = max(1, len(levels)) * run.nodes
    peers = held_against_peers(run.series, levels, tests)
    held = {
        place: [
            *held_against(
                run.series[place],
                values[place],
                baseline,
                tests=tests,
                world_size=run.world_size,
            ),
            *([peers[place]] if place in peers else []),
        ]
        for place in levels
    }
    low = {place for place, limits in held.items() if any(each.surely_low for each in limits)}
    figures = []
    for place, series in enumerate(run.series):
        if place not in levels:
            figures.append(_too_few(series, values[place], run, rounds))
            continue
        alone = place in low and _is_alone(place, run.series, levels, low)
        case = _Case(run, baseline, power_limits, rounds, alone=alone, tests=tests)
        figures.append(case.judge(series, levels[place], held[place]))
    return tuple(figures)


class _Case:
    """What every figure of a run is judged with."""

    def __init__(
        self,
        run: AcceptanceRun,
        baseline: Baseline | None,
        power_limits: Mapping[str, float],
        rounds: tuple[int, ...],
        *,
        alone: bool,
        tests: int,
    ) -> None:
        self._run, self._baseline, self._power_limits = run, baseline, power_limits
        self._rounds, self._alone, self._tests = rounds, alone, tests

    def judge(self, series: Series, level: Estimate, limits: Sequence[Held]) -> JudgedFigure:
        kept = [series.values[it] if it in self._rounds else None for it in _places(series)]
        deciding = _deciding(limits)
        for slow, found in known_splits(self._run, self._rounds):
            groups = split(kept, slow, FAMILY_ERROR / self._tests)
            if groups is not None:
                return _flapping(series, level, groups, deciding, found)
        groups = modes(kept, FAMILY_ERROR / self._tests)
        if groups is not None:
            question = CauseQuestion(series, self._rounds, modes=groups)
            found = explain(question, self._run, self._baseline, self._power_limits)
            return _flapping(series, level, groups, deciding, found)
        if deciding is None:
            because = "no limit to judge by"
            baseline = self._baseline
            if baseline is not None and baseline.run.world_size != self._run.world_size:
                because += f": the baseline is over {baseline.run.world_size} ranks"
            return _figure(series, level, FigureStatus.NO_LIMIT, because=because)
        if deciding.surely_low or deciding.seems_low:
            others = ""
            if self._alone:
                others = "the others of this node are"
            question = CauseQuestion(series, self._rounds, kind=deciding.limit.kind, others=others)
            found = explain(question, self._run, self._baseline, self._power_limits)
            if not deciding.surely_low:
                return _seeming(_figure(series, level, FigureStatus.UNCLEAR, deciding), found)
            figure = _figure(series, level, FigureStatus.LOW, deciding, found.because)
            return figure.model_copy(update={"cause": found.cause, "action": found.action})
        if deciding.surely_within:
            return _figure(series, level, FigureStatus.WITHIN, deciding)
        because = "its interval holds the limit"
        return _figure(series, level, FigureStatus.UNCLEAR, deciding, because)


def _flapping(
    series: Series,
    level: Estimate,
    groups: tuple[Mode, Mode],
    held: Held | None,
    found: Explanation,
) -> JudgedFigure:
    """A figure of two speeds, which has no level."""
    figure = _figure(series, level, FigureStatus.FLAPPING, held, found.because)
    sizes = tuple((mode.rate, len(mode.rounds)) for mode in groups)
    return figure.model_copy(update={"modes": sizes, "cause": found.cause, "action": found.action})


def _seeming(figure: JudgedFigure, found: Explanation) -> JudgedFigure:
    """A figure that may be low: it is accused of nothing, but a set-up that would explain it is to be
    mended first."""
    update: dict[str, object] = {"seems_low": True, "because": "its interval holds the limit"}
    if found.cause is Cause.SETUP:
        update |= {"because": found.because, "cause": found.cause, "action": found.action}
    return figure.model_copy(update=update)


def _deciding(limits: Sequence[Held]) -> Held | None:
    """The first limit that the figure misses, else the first that leaves it open, else the
    highest; ``None`` without any."""
    missed = [each for each in limits if each.surely_low]
    missed = missed or [each for each in limits if each.seems_low]
    left_open = [each for each in limits if not each.surely_within]
    if missed or left_open:
        return (missed or left_open)[0]
    return max(limits, key=lambda each: each.limit.rate, default=None)


def _figure(
    series: Series,
    level: Estimate,
    status: FigureStatus,
    held: Held | None = None,
    because: str = "",
) -> JudgedFigure:
    rate = level.through(from_log)
    limit, deficit = None, None
    if held is not None:
        limit, deficit = held.limit, held.deficit
    return JudgedFigure(
        figure=series.figure,
        part=series.part,
        unit=series.unit,
        uuids=series.uuids,
        status=status,
        rounds=rate.count,
        rate=rate.value,
        low=rate.low,
        high=rate.high,
        limit=limit,
        deficit=deficit,
        because=because,
    )


def _too_few(
    series: Series, values: Sequence[float], run: AcceptanceRun, rounds: Sequence[int]
) -> JudgedFigure:
    """A figure that cannot be judged, and why; its level is that of the disturbed rounds where no
    other was measured."""
    because = f"{len(values)} rounds, {MIN_ROUNDS} are needed"
    if len(rounds) < len(run.rounds):
        because = f"{len(values)} undisturbed rounds of {len(run.rounds)}, {MIN_ROUNDS} are needed"
    shown = list(values) or _values(series, range(len(run.rounds)))
    figure = JudgedFigure(
        figure=series.figure,
        part=series.part,
        unit=series.unit,
        uuids=series.uuids,
        status=FigureStatus.UNCLEAR,
        rounds=len(values),
        because=because,
    )
    if not shown:
        return figure
    return figure.model_copy(update={"rate": from_log(log_level(shown).value)})


def _is_alone(
    place: int, series: Sequence[Series], levels: Mapping[int, Estimate], low: set[int]
) -> bool:
    """Whether at least two parts of the same kind on this node are there, and most are not low."""
    kind = (series[place].figure, series[place].device)
    others = [
        other
        for other in levels
        if other != place and (series[other].figure, series[other].device) == kind
    ]
    return len(others) >= 2 and sum(other in low for other in others) * 3 <= len(others)


def _values(series: Series, rounds: Sequence[int]) -> list[float]:
    found = [series.values[it] for it in rounds]
    return [value for value in found if value is not None]


def _places(series: Series) -> range:
    return range(len(series.values))


def is_suspected(figure: JudgedFigure) -> bool:
    """Whether something is wrong with a figure, or seems so."""
    return figure.seems_low or figure.status in (FigureStatus.LOW, FigureStatus.FLAPPING)
