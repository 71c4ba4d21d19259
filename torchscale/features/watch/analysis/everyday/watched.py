"""What everyday causes are found in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.diagnosis.shared import CATCHES_UP, COMPARED_WITH, EXPLAINED_SHARE
from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.features.watch.analysis.evidence import ShownByRank
from torchscale.features.watch.analysis.step_log import StepLog
from torchscale.util.text import ranks_label

Series = NDArray[np.float64]
"""A value for each column of a table of steps."""
Marks = NDArray[np.bool_]


@dataclass(frozen=True)
class WatchedSteps:
    """Steps of a job and what its ranks showed beside them.

    Attributes:
        log: All steps that are judged.
        table: Its columns.
        evidence: Of each row; empty without.
        on_device: Whether the work runs on a device beside the host.
    """

    log: StepLog
    table: JobSteps
    evidence: tuple[ShownByRank, ...] = ()
    on_device: bool = False

    @property
    def ranks(self) -> tuple[int, ...]:
        """Global rank of each row."""
        return self.log.ranks

    @property
    def first(self) -> int:
        """Number of the first step."""
        return self.table.first

    @property
    def steps(self) -> int:
        """Steps in all columns."""
        return len(self.table) * self.log.per_column

    @cached_property
    def wall(self) -> Series:
        """Seconds of each column's step, mean over ranks."""
        return np.asarray(self.table.wall.mean(axis=0))

    @cached_property
    def step_seconds(self) -> float:
        """Mean step."""
        return float(self.wall.mean())

    @property
    def seconds(self) -> float:
        """All steps together."""
        return self.step_seconds * self.steps

    def columns(self, steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """The column of each step; -1 for one that is in none."""
        column = (steps - self.first) // self.log.per_column
        return np.asarray(np.where((steps >= self.first) & (column < len(self.table)), column, -1))

    def by_step(self, values: Series) -> Series:
        """A value for each step from step 0 on; 0 before the first column."""
        return np.concatenate([np.zeros(self.first), np.repeat(values, self.log.per_column)])

    def spread(self, steps: NDArray[np.int64], seconds: Series) -> Series:
        """Seconds by column, as a mean of its steps; what is in no column is left out."""
        column = self.columns(steps)
        inside = column >= 0
        totals = np.bincount(column[inside], seconds[inside], minlength=len(self.table))
        return np.asarray(totals / self.log.per_column)

    def exact_steps(self, row: int, chosen: Marks) -> tuple[int, ...]:
        """Numbers of the chosen columns' steps. Where columns hold several steps, these are the
        long ones of the rank among them; none where its longest ones are not single."""
        if self.log.per_column == 1:
            return tuple((np.flatnonzero(chosen) + self.first).tolist())
        mine = [item for item in self.log.long_steps if item.row == row]
        column = self.columns(np.array([item.step for item in mine], np.int64))
        inside = (column >= 0) & chosen[column]
        longest = max((mine[place].excess for place in np.flatnonzero(inside)), default=0.0)
        return tuple(
            mine[place].step
            for place in np.flatnonzero(inside)
            if mine[place].excess >= EXPLAINED_SHARE * longest
        )

    def lost(self, seconds: Series) -> tuple[float, bool]:
        """Seconds a step that the job loses by interruptions, and whether that is certain.

        Where a host runs ahead of its device, later steps make up for an interruption. What of it
        is lost shows in the steps after it, as long as the next one is far enough away.

        Args:
            seconds: That ranks are interrupted, by column.
        """
        known = float(seconds.mean())
        if not self.on_device or known <= 0:
            return known, True
        window = -(-CATCHES_UP // self.log.per_column) + 1
        around = -(-COMPARED_WITH // self.log.per_column)
        high = large(seconds)
        starts = np.flatnonzero(high & ~np.concatenate([[False], high[:-1]]))
        inside = np.zeros(len(high) + window, bool)
        for start in starts.tolist():
            inside[start : start + window] = True
        inside = inside[: len(high)]
        if inside.mean() > EXPLAINED_SHARE:
            return known, False
        losses = []
        for start in starts.tolist():
            near = slice(max(0, start - around), start + window + around)
            calm = self.wall[near][~inside[near]]
            if len(calm):
                lost = self.wall[start : start + window] - float(calm.mean())
                losses.append(float(lost.sum()))
        if not losses:
            return known, False
        return min(known, max(0.0, float(np.sum(losses)) / len(seconds))), True

    def where(self, rows: Sequence[int]) -> str:
        """``on rank 0 alone, and the others wait``, ``on every rank``, ``on ranks 0 and 2``."""
        if len(self.ranks) == 1:
            return f"on {ranks_label(self.ranks)}"
        if len(rows) == len(self.ranks):
            return "on every rank"
        label = ranks_label([self.ranks[row] for row in rows])
        return f"on {label} alone, and the others wait"

    def rank_of(self, rows: Sequence[int]) -> int | None:
        """The only one of several ranks."""
        if len(rows) == 1 < len(self.ranks):
            return self.ranks[rows[0]]
        return None


def large(values: Series) -> Marks:
    """The values that make up most of their sum: those at least half as large as the one at which
    half of the sum is reached. Many slight ones beside some large ones do not count."""
    total = float(values.sum())
    if total <= 0:
        return np.zeros(len(values), bool)
    ordered = np.sort(values)[::-1]
    half = np.searchsorted(np.cumsum(ordered), EXPLAINED_SHARE * total)
    return np.asarray(values >= EXPLAINED_SHARE * ordered[min(int(half), len(ordered) - 1)])


def rows_with(times: NDArray[np.float64]) -> tuple[int, ...]:
    """Rows with at least half as much as the one with most."""
    means = times.mean(axis=1)
    return tuple(np.flatnonzero(means >= EXPLAINED_SHARE * means.max()).tolist())
