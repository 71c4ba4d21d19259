"""All steps of a job in bounded memory: steps are averaged over pairs whenever there are too many
of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.step_windows import LONG_STEP_FACTOR, RARE_SHARE
from torchscale.analysis.exchanges.steps import TIMES, JobSteps, Matrix

MAX_COLUMNS = 16_384
"""Columns of a log: a job of less than so many steps is kept step by step. With 8 ranks 10 MB."""
RECENT_STEPS = 4_096
"""The last steps, which are kept one by one: eight times the longest period that is looked for."""
_MAX_LONG_STEPS = 10_000
"""Of all ranks; after that, the oldest are dropped."""
_TYPICAL_OVER = 200
"""Steps over which the typical step of a rank is taken: a median that follows a job whose steps
change."""


@dataclass(frozen=True)
class LongStep:
    """A step that took a rank much longer by itself than its steps before.

    Attributes:
        step: Its number.
        row: Of the rank.
        excess: Seconds beyond the median of the steps before.
    """

    step: int
    row: int
    excess: float


@dataclass
class StepLog:
    """Steps from the first on.

    Attributes:
        ranks: Global rank of each row.
        hosts: And its host, where it is known.
        stages: Rows of the ranks of each stage of a pipeline, where the job is one.
        sends: Whether ranks send to and receive from each other on their devices.
        per_column: Steps that each column is the mean of.
        steps: Number of steps in all.
        long_steps: In order.
    """

    ranks: tuple[int, ...]
    hosts: tuple[str, ...] | None = None
    stages: tuple[tuple[int, ...], ...] | None = None
    sends: bool = False
    per_column: int = 1
    steps: int = 0
    long_steps: list[LongStep] = field(default_factory=list)
    _parts: list[JobSteps] = field(default_factory=list)
    _rest: JobSteps | None = None
    _before: Matrix | None = None
    _recent: list[JobSteps] = field(default_factory=list)

    def add(self, steps: JobSteps) -> None:
        """The next steps."""
        if not len(steps):
            return
        self._find_long(steps)
        self.steps += len(steps)
        self._recent.append(steps)
        while sum(map(len, self._recent[1:])) >= RECENT_STEPS:
            del self._recent[0]
        if self._rest is not None:
            steps = joined([self._rest, steps])
        whole = len(steps) // self.per_column * self.per_column
        self._rest = part_of(steps, whole, len(steps)) if whole < len(steps) else None
        if whole:
            self._parts.append(_averaged(part_of(steps, 0, whole), self.per_column))
        while sum(map(len, self._parts)) > MAX_COLUMNS:
            self._halve()

    @property
    def table(self) -> JobSteps | None:
        """All columns; ``None`` before the first."""
        if not self._parts:
            return None
        self._parts = [joined(self._parts)]
        return self._parts[0]

    def recent(self, first: int) -> JobSteps | None:
        """The last steps from number ``first`` on, one by one; ``None`` where there are none."""
        if not self._recent:
            return None
        self._recent = [joined(self._recent)]
        known = self._recent[0]
        begin = max(first - known.first, len(known) - RECENT_STEPS, 0)
        return part_of(known, begin, len(known)) if begin < len(known) else None

    def between(self, first: int, last: int) -> JobSteps | None:
        """The columns of steps ``first`` to ``last``, the latter not included."""
        table = self.table
        if table is None:
            return None
        skipped = table.first // self.per_column
        begin = max(0, -(-first // self.per_column) - skipped)
        end = min(len(table), last // self.per_column - skipped)
        if end <= begin:
            return None
        part = part_of(table, begin, end)
        return replace(part, first=(begin + skipped) * self.per_column)

    def without(self, table: JobSteps) -> StepLog:
        """A log of these columns of it alone."""
        return replace(self, _parts=[table], _rest=None, _before=None)

    def _halve(self) -> None:
        table = joined(self._parts)
        whole = len(table) // 2 * 2
        self._parts = [_averaged(part_of(table, 0, whole), 2)]
        if whole < len(table):
            # An odd column goes back to the steps that make no whole column yet.
            left = part_of(table, whole, len(table))
            rest = _repeated(left, self.per_column)
            self._rest = rest if self._rest is None else joined([rest, self._rest])
        self.per_column *= 2

    def _find_long(self, steps: JobSteps) -> None:
        """Steps that took a rank 1.5 times its median of the steps before. More of them than a
        tenth are no interruptions: that is how the rank works."""
        own = steps.host_calm + steps.data
        known = own if self._before is None else np.concatenate([self._before, own], axis=1)
        typical = np.median(known[:, -_TYPICAL_OVER:], axis=1)
        long = own > LONG_STEP_FACTOR * typical[:, None]
        long &= long.mean(axis=1, keepdims=True) <= max(RARE_SHARE, 1 / len(steps))
        for row, column in np.argwhere(long):
            excess = float(own[row, column] - typical[row])
            self.long_steps.append(LongStep(steps.first + int(column), int(row), excess))
        del self.long_steps[:-_MAX_LONG_STEPS]
        self._before = known[:, -_TYPICAL_OVER:]


def part_of(steps: JobSteps, begin: int, end: int) -> JobSteps:
    """Columns ``begin`` to ``end``, the latter not included."""
    cut = {name: getattr(steps, name)[:, begin:end] for name in TIMES}
    return JobSteps(
        first=steps.first + begin,
        end_ns=steps.end_ns[begin:end],
        waits_by=steps.waits_by,
        **cut,
    )


def joined(parts: Sequence[JobSteps]) -> JobSteps:
    """Neighbouring parts as one."""
    if len(parts) == 1:
        return parts[0]
    times = {
        name: np.concatenate([getattr(part, name) for part in parts], axis=1) for name in TIMES
    }
    return JobSteps(
        first=parts[0].first,
        end_ns=np.concatenate([part.end_ns for part in parts]),
        waits_by=parts[0].waits_by,
        **times,
    )


def _averaged(steps: JobSteps, count: int) -> JobSteps:
    """Means of so many columns each; their number is a multiple of it."""
    if count == 1:
        return steps
    times: dict[str, NDArray[np.float64]] = {}
    for name in TIMES:
        values = getattr(steps, name)
        times[name] = values.reshape(len(values), -1, count).mean(axis=2)
    end_ns = steps.end_ns[count - 1 :: count]
    return JobSteps(first=steps.first, end_ns=end_ns, waits_by=steps.waits_by, **times)


def _repeated(steps: JobSteps, count: int) -> JobSteps:
    times = {name: np.repeat(getattr(steps, name), count, axis=1) for name in TIMES}
    end_ns = np.repeat(steps.end_ns, count)
    return JobSteps(first=steps.first, end_ns=end_ns, waits_by=steps.waits_by, **times)
