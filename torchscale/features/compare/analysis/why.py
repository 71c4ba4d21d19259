"""Why a cell takes longer on one side than on the other: the difference of the mean step, split
into parts that add up to it.

Pure; definitions in ``docs/method.md``, *Parts of a difference*. A part is a mean over launches, so
differences of parts sum to the difference of the step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from torchscale.analysis.stats.mean_differences import MeanDifference, mean_difference
from torchscale.analysis.stats.ratios import holm
from torchscale.analysis.summary.conditions import session_numbers
from torchscale.features.compare.analysis.cell_why import (
    CellWhy,
    Clarity,
    DisturbedSeconds,
    PartChange,
    PartName,
    Probe,
)
from torchscale.features.compare.analysis.change import MIN_LAUNCHES, MetricChange
from torchscale.features.compare.analysis.headlines import HEADLINES
from torchscale.features.compare.analysis.pair import CellComparison, CellOutcome, Pair
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.experiment_file import Session
from torchscale.schema.run.result_set import ResultCell
from torchscale.schema.run.step_parts import StepPart, StepParts
from torchscale.util.optional import complete

LEVEL = 0.05
"""Of the probability that any part is called clear where none differs (Holm)."""


def split_pair(pair: Pair) -> tuple[tuple[CellWhy, ...], dict[str, str]]:
    """The difference of each training cell that was compared, the largest relative difference
    first; and why a cell has no parts, by its id."""
    found, without = [], {}
    for cell in pair.cells:
        before, after = cell.before, cell.after
        if cell.outcome is not CellOutcome.COMPARED or before is None or after is None:
            continue
        if as_kind(before.cell, TrainingCell) is None:
            continue
        missing = [
            f"{side.name}: {reason}"
            for side, of_side in ((pair.reference, before), (pair.other, after))
            if (reason := _missing(of_side))
        ]
        if missing:
            without[before.cell.id] = "; ".join(missing)
        else:
            found.append(_split(cell, pair))
    found.sort(key=lambda one: -abs(one.step.seconds) / one.step.difference.before)
    return tuple(found), without


def _missing(cell: ResultCell) -> str:
    """Why the parts of a cell's step are not known; empty where they are."""
    without = sum(launch.parts is None for launch in cell.launches)
    if not without:
        return ""
    return (
        f"{without} of {len(cell.launches)} launches have no parts of their step (measured or saved "
        "by an earlier version, or steps of a rank are missing)"
    )


@dataclass(frozen=True)
class _Side:
    """Parts of each launch, and the number of its session."""

    launches: Sequence[StepParts]
    sessions: Sequence[int]

    def groups(self, read: Callable[[StepParts], float]) -> list[list[float]]:
        """A figure of each launch, by session."""
        by_session: dict[int, list[float]] = {}
        for session, launch in zip(self.sessions, self.launches, strict=True):
            by_session.setdefault(session, []).append(read(launch))
        return list(by_session.values())


def _side(cell: ResultCell, sessions: Sequence[Session]) -> _Side:
    launches = complete(launch.parts for launch in cell.launches)
    assert launches is not None  # noqa: S101 - see _missing; this tells the type checker
    return _Side(launches, session_numbers(sessions, cell.launches))


def _split(cell: CellComparison, pair: Pair) -> CellWhy:
    assert cell.before is not None  # noqa: S101 - compared cells have both
    assert cell.after is not None  # noqa: S101
    sides = _alike(
        _side(cell.before, pair.reference.sessions), _side(cell.after, pair.other.sessions)
    )
    step = _difference(sides, lambda launch: launch.step)
    disturbance = _disturbance(cell.changes, step)
    launches = (len(sides[0].launches), len(sides[1].launches))
    enough = min(launches) >= MIN_LAUNCHES
    judge = _Judge(pair.threshold * step.before, disturbance, enough=enough)
    differences = _by_name(sides, lambda launch: launch.whole)
    parts = judge.family(differences, _host_bounds(sides, disturbance))
    (whole,) = judge.family({None: step})
    ranks: dict[int, MeanDifference] = {}
    if len({len(launch.by_rank) for side in sides for launch in side.launches}) == 1:
        ranks = _by_name(sides, lambda launch: dict(enumerate(launch.by_rank)))
    later_in = _by_name(sides, lambda launch: launch.later_in)
    why = CellWhy(
        cell,
        launches,
        whole,
        parts,
        judge.family(ranks),
        judge.family(later_in),
        disturbance=disturbance,
        probe=_probe(sides),
    )
    return _with_outside(why, sides, pair.threshold)


def _with_outside(why: CellWhy, sides: tuple[_Side, _Side], threshold: float) -> CellWhy:
    """The difference with what launches take outside their steps, where all tell."""
    if any(launch.outside_seconds is None for side in sides for launch in side.launches):
        return why
    outside = _difference(sides, lambda launch: launch.outside_seconds or 0.0)
    judge = _Judge(threshold * outside.before, DisturbedSeconds(), enough=why.enough_launches)
    (whole,) = judge.family({None: outside})
    parts = judge.family(_by_name(sides, lambda launch: launch.whole_outside))
    return replace(why, outside=whole, outside_parts=parts)


def _alike(before: _Side, after: _Side) -> tuple[_Side, _Side]:
    """Both sides by the finer accounting, where all launches have it, else by the coarser one."""
    launches = [*before.launches, *after.launches]
    if any(StepPart.EXCHANGE in launch.parts for launch in launches):
        before, after = (
            replace(side, launches=[launch.coarse for launch in side.launches])
            for side in (before, after)
        )
    return before, after


def _difference(sides: tuple[_Side, _Side], read: Callable[[StepParts], float]) -> MeanDifference:
    return mean_difference(sides[0].groups(read), sides[1].groups(read))


def _by_name(
    sides: tuple[_Side, _Side], read: Callable[[StepParts], Mapping[PartName, float]]
) -> dict[PartName, MeanDifference]:
    """The difference of every part that a launch has; one that lacks it spent no time in it."""
    names = dict.fromkeys(
        name for side in sides for launch in side.launches for name in read(launch)
    )

    def seconds(name: PartName) -> Callable[[StepParts], float]:
        return lambda launch: read(launch).get(name, 0.0)

    return {name: _difference(sides, seconds(name)) for name in names}


def _disturbance(changes: Iterable[MetricChange], step: MeanDifference) -> DisturbedSeconds:
    """How many seconds of the difference unequal conditions may have made: from what bounds the
    ratio of speeds without them."""
    change = next((one for one in changes if one.metric in HEADLINES), None)
    if change is None or not change.conditions:
        return DisturbedSeconds()
    least, most = -math.inf, math.inf
    if change.low is not None:
        least = step.after - step.before / change.low.value
    if change.high is not None:
        most = step.after - step.before / change.high.value
    return DisturbedSeconds(change.conditions, min(0.0, least), max(0.0, most))


_OF_HOST = (
    StepPart.DATA_WAIT,
    StepPart.FORWARD,
    StepPart.BACKWARD,
    StepPart.OPTIMIZER,
    StepPart.COMPUTE,
)
"""Parts that a busy or slow host or device makes longer alike. What it does to an exchange, for which
all ranks must come, has no such relation to the rest."""
_CONTROL_SHARE = 0.1
"""Share of the time of all phases that the others must have to tell what a disturbance did: of a step
that is nearly all forward pass, the optimizer shows little."""


def _host_bounds(
    sides: tuple[_Side, _Side], disturbance: DisturbedSeconds
) -> dict[StepPart, DisturbedSeconds]:
    """What a disturbance may have made of each phase, by what it made of the others that compute: as
    if all phases had become longer by as large a share as these at the end of their interval, and
    all of that were in this phase."""
    if not disturbance.conditions:
        return {}
    present = [
        part
        for part in _OF_HOST
        if any(part in one.parts for side in sides for one in side.launches)
    ]
    whole = _difference(sides, _seconds_of(present)).before
    bounds = {}
    for part in present:
        computing = [one for one in present if one not in (part, StepPart.DATA_WAIT)]
        others = _difference(sides, _seconds_of(computing))
        if others.interval is None or others.before < _CONTROL_SHARE * whole:
            continue
        least, most = (end / others.before * whole for end in others.interval)
        bounds[part] = DisturbedSeconds(
            disturbance.conditions,
            max(disturbance.least, min(0.0, least)),
            min(disturbance.most, max(0.0, most)),
        )
    return bounds


def _seconds_of(parts: Sequence[StepPart]) -> Callable[[StepParts], float]:
    return lambda launch: math.fsum(launch.parts.get(part, 0.0) for part in parts)


@dataclass(frozen=True)
class _Judge:
    """``threshold`` in seconds: a smaller difference counts as none. ``enough``: whether there are
    enough launches to judge."""

    threshold: float
    disturbance: DisturbedSeconds
    enough: bool

    def family(
        self,
        differences: Mapping[PartName, MeanDifference],
        bounds: Mapping[PartName, DisturbedSeconds] = MappingProxyType({}),
    ) -> tuple[PartChange[PartName], ...]:
        """Parts that are judged together: that any of them is called clear by chance has the
        probability :data:`LEVEL`. A disturbance is taken as if all of it were in each part, but for
        those with ``bounds`` of their own."""
        disturbed = {name: bounds.get(name, self.disturbance) for name in differences}
        tests = {
            name: one.p(disturbed[name].least, disturbed[name].most)
            for name, one in differences.items()
        }
        tested = {name: p for name, p in tests.items() if p is not None and self.enough}
        adjusted = dict(zip(tested, holm(list(tested.values())), strict=True))
        return tuple(
            PartChange(
                name,
                one,
                adjusted.get(name),
                self._clarity(one, disturbed[name], adjusted.get(name)),
            )
            for name, one in differences.items()
        )

    def _clarity(
        self, difference: MeanDifference, disturbance: DisturbedSeconds, p: float | None
    ) -> Clarity:
        interval = difference.interval
        if interval is None or p is None:
            return Clarity.UNCLEAR
        least, most = disturbance.least, disturbance.most
        beyond = max(difference.value - most, least - difference.value)
        if p < LEVEL and beyond > self.threshold:
            return Clarity.CLEAR
        if max(interval[1] - least, most - interval[0]) <= self.threshold:
            return Clarity.SMALL
        return Clarity.UNCLEAR


def _probe(sides: tuple[_Side, _Side]) -> Probe:
    """What the launches noticed of the exchange of gradients."""

    def means(read: Callable[[StepParts], float | None]) -> tuple[float, float] | None:
        values = [complete(read(launch) for launch in side.launches) for side in sides]
        if values[0] is None or values[1] is None:
            return None
        return math.fsum(values[0]) / len(values[0]), math.fsum(values[1]) / len(values[1])

    link = None
    if means(lambda launch: launch.link_seconds) is not None:
        link = _difference(sides, lambda launch: launch.link_seconds or 0.0)
    return Probe(
        means(lambda launch: launch.gradient_bytes), means(lambda launch: launch.buckets), link
    )
