"""Compilations by torch.compile while the job trains."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from torchscale.analysis.diagnosis.shared import COST_FLOOR
from torchscale.analysis.stats.intervals import IntervalSet
from torchscale.analysis.stats.periods import event_period
from torchscale.features.watch.analysis.everyday.cause import EverydayCause, finding_of
from torchscale.features.watch.analysis.everyday.compile_reasons import advice_on, short_reason
from torchscale.features.watch.analysis.everyday.interruptions import APART, begins
from torchscale.features.watch.analysis.everyday.watched import Series, WatchedSteps
from torchscale.features.watch.analysis.evidence import Compilation
from torchscale.schema.profiles.finding import Confidence, FindingKind
from torchscale.schema.watch.rank import ProgramLine
from torchscale.util.text import ranks_label
from torchscale.util.units import format_percent, format_seconds
from torchscale.util.words import plural

_NS = 1e-9
_CERTAIN_COUNT = 3
"""Chosen: once or twice a program gets new shapes, as in the last batch of an epoch; from here on
it goes on."""
_MAX_REASONS = 3
_MAX_STEPS = 5
"""Reasons and steps that are listed as evidence."""


@dataclass(frozen=True)
class _Compiled:
    """A compilation while the job trained, and the row of its rank."""

    row: int
    it: Compilation

    @property
    def place(self) -> tuple[str, str, int]:
        return self.it.function, self.it.file, self.it.line


def find_recompilations(watched: WatchedSteps) -> list[EverydayCause]:
    """What torch.compile compiled after the first steps; what it compiles in them is start-up."""
    last = watched.first + watched.steps
    compiled = [
        _Compiled(row, one)
        for row, rank in enumerate(watched.evidence)
        for one in rank.compilations
        if watched.first <= one.step < last
    ]
    if not compiled:
        return []
    seconds = _seconds(compiled)
    if seconds < COST_FLOOR * watched.seconds:
        return []
    most, function = _function_with_most(compiled)
    reasons = Counter(short_reason(one.it.reason) for one in compiled if one.it.reason)
    rows = sorted({one.row for one in compiled})
    period = event_period(begins(tuple(sorted({one.it.step for one in most}))))
    finding = finding_of(
        FindingKind.RECOMPILATION,
        watched,
        seconds / watched.steps,
        rank=watched.rank_of(rows),
        period=period,
        confidence=Confidence.HIGH if len(compiled) >= _CERTAIN_COUNT else Confidence.MEDIUM,
        summary=_summary(watched, compiled, function, seconds),
        evidence=_evidence(watched, compiled, reasons, seconds),
        advice=advice_on([one.it for one in most]),
    )
    line = _line(function, len(most))
    mine = sum(one.it.seconds for one in most if one.row == most[0].row) / watched.steps
    return [EverydayCause(finding, _by_column(watched, compiled), ((line, mine),))]


def _function_with_most(compiled: Sequence[_Compiled]) -> tuple[list[_Compiled], Compilation]:
    """The compilations of the function that takes most time."""
    times: dict[tuple[str, str, int], float] = defaultdict(float)
    for one in compiled:
        times[one.place] += one.it.seconds
    place = max(times, key=lambda key: times[key])
    most = [one for one in compiled if one.place == place]
    return most, most[0].it


def _seconds(compiled: Sequence[_Compiled]) -> float:
    """In which at least one rank compiles: the others wait for it."""
    began = np.array([one.it.began_ns for one in compiled], np.int64)
    ended = began + np.array([round(one.it.seconds / _NS) for one in compiled], np.int64)
    return IntervalSet(began, ended).length * _NS


def _by_column(watched: WatchedSteps, compiled: Sequence[_Compiled]) -> Series:
    """Seconds a step of the rank that compiles longest there."""
    rows = []
    for row in {one.row for one in compiled}:
        mine = [one.it for one in compiled if one.row == row]
        steps = np.array([one.step for one in mine], np.int64)
        rows.append(watched.spread(steps, np.array([one.seconds for one in mine])))
    return np.asarray(np.max(rows, axis=0))


def _summary(
    watched: WatchedSteps, compiled: Sequence[_Compiled], function: Compilation, seconds: float
) -> str:
    rows = sorted({one.row for one in compiled})
    share = format_percent(seconds / watched.seconds)
    where = watched.where(rows)
    again = "compiles again" if any(one.it.reason for one in compiled) else "compiles"
    name = f"{function.function} ({_short(function)})"
    return (
        f"torch.compile {again} while the job trains, {name} most: "
        f"{format_seconds(seconds)}, {share} of the steps' time, {where}"
    )


def _short(function: Compilation) -> str:
    return f"{function.file.rpartition('/')[2]}:{function.line}"


def _evidence(
    watched: WatchedSteps,
    compiled: Sequence[_Compiled],
    reasons: Counter[str],
    seconds: float,
) -> list[str]:
    steps = sorted({one.it.step for one in compiled})
    shown = ", ".join(f"{step:,}" for step in steps[:_MAX_STEPS])
    more = ", …" * (len(steps) > _MAX_STEPS)
    evidence = [
        f"{plural(len(compiled), 'compilation')} after the first {watched.first} steps, in "
        f"{'step' if len(steps) == 1 else 'steps'} {shown}{more}"
    ]
    evidence += [
        f"{plural(count, 'time')}: {reason}" for reason, count in reasons.most_common(_MAX_REASONS)
    ]
    failed = sorted(
        {f"{one.it.function} ({_short(one.it)})" for one in compiled if one.it.has_failed}
    )
    if failed:
        evidence.append(f"not compiled any more, runs as it is: {', '.join(failed[:_MAX_REASONS])}")
    rows = sorted({one.row for one in compiled})
    alone = max(_seconds([one for one in compiled if one.row == row]) for row in rows)
    if len(rows) > 1 and seconds > APART * alone:
        label = ranks_label([watched.ranks[row] for row in rows])
        evidence.append(
            f"{label} compile at different times, {format_seconds(alone)} each at most, and all "
            "wait each time"
        )
    return evidence


def _line(function: Compilation, count: int) -> ProgramLine:
    return ProgramLine(
        file=function.file,
        line=function.line,
        function=function.function,
        called="torch.compile",
        samples=count,
    )
