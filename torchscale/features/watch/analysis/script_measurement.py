"""Which steps of a user's script are measured: the rules of warm-up and measurement, applied to
steps that were seen from outside."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.training.stop import MeasurementRule, WarmupRule
from torchscale.config.script import ScriptSteps
from torchscale.schema.cells.training import Measurement
from torchscale.schema.launch.steps import Batch, BatchTimes, StopRule, Warmup

Walls = NDArray[np.float64]
"""Seconds of each rank (a row) and step (a column)."""
MOST_STEPS = 20_000
"""Steps that are measured at most: each is a line of a file."""
_MOST_BATCHES = 400
"""Of a program that is measured to its own end: beyond it, neighbours become one."""


@dataclass
class _Batches:
    """Batches of consecutive steps: their lengths, and the seconds of each rank."""

    steps: list[int] = field(default_factory=list)
    seconds: list[NDArray[np.float64]] = field(default_factory=list)

    def add(self, walls: Walls) -> None:
        self.steps.append(walls.shape[1])
        self.seconds.append(walls.sum(axis=1))

    def of_group(self) -> list[Batch]:
        """Of the slowest rank."""
        return [
            Batch(steps=steps, seconds=float(seconds.max()))
            for steps, seconds in zip(self.steps, self.seconds, strict=True)
        ]

    def of_rank(self, row: int) -> BatchTimes:
        return BatchTimes(
            steps=tuple(self.steps),
            seconds=tuple(float(seconds[row]) for seconds in self.seconds),
        )

    def halve(self) -> None:
        """Join neighbours; a last one without a neighbour stays as it is."""
        pairs = range(0, len(self.steps), 2)
        self.steps = [sum(self.steps[place : place + 2]) for place in pairs]
        self.seconds = [
            np.sum(self.seconds[place : place + 2], axis=0, dtype=np.float64) for place in pairs
        ]


class ScriptMeasurement:
    """Takes the steps of all ranks as they come.

    Attributes:
        ended_by: The rule that ended the measurement; ``None`` while it goes on.
        first: Number of the first measured step, counted from the program's second, the first whose
            beginning is known; ``None`` during warm-up.
        measured: Measured steps, in whole batches.
    """

    def __init__(self, rule: Measurement, steps: ScriptSteps) -> None:
        self._rule, self._steps = rule, steps
        self._budget_left: float | None = None
        self._warmup_rule: WarmupRule | None = None
        self._measurement_rule: MeasurementRule | None = None
        self._waiting: Walls = np.zeros((0, 0))
        self._warmup, self._batches = _Batches(), _Batches()
        self._is_steady = False
        self._joined = 1
        self.ended_by: StopRule | None = None
        self.first: int | None = None

    @property
    def measured(self) -> int:
        """Steps of all batches."""
        return sum(self._batches.steps)

    @property
    def warmup_steps(self) -> int:
        """Steps of the warm-up so far."""
        return sum(self._warmup.steps)

    @property
    def step_seconds(self) -> float | None:
        """Mean step of the group over all batches; ``None`` before the first."""
        if not self.measured:
            return None
        return sum(batch.seconds for batch in self._batches.of_group()) / self.measured

    def set_budget(self, seconds: float) -> None:
        """Before the first step: seconds that warm-up and measurement may take."""
        self._budget_left = seconds

    def add(self, walls: Walls) -> None:
        """The next steps of all ranks, in seconds."""
        if self.ended_by is not None or not walls.shape[1]:
            return
        if self._waiting.size:
            walls = np.concatenate([self._waiting, walls], axis=1)
        while self.ended_by is None and (length := self._next_batch(walls)) <= walls.shape[1]:
            self._take(walls[:, :length])
            walls = walls[:, length:]
        self._waiting = walls

    def end(self) -> None:
        """The program has ended by itself: what was measured counts."""
        if self.ended_by is None and self.measured:
            self.ended_by = StopRule.PROGRAM

    def warmup_of(self, ranks: int) -> list[Warmup]:
        """The warm-up of each rank."""
        return [
            Warmup(
                steps=batches.total_steps,
                seconds=batches.total_seconds,
                steady=self._is_steady,
                batches=batches,
            )
            for batches in map(self._warmup.of_rank, range(ranks))
        ]

    def batches_of(self, ranks: int) -> list[BatchTimes]:
        """The measured batches of each rank."""
        return [self._batches.of_rank(row) for row in range(ranks)]

    def _next_batch(self, walls: Walls) -> int:
        """Steps of the next batch."""
        if self._measurement_rule is not None:
            return self._measurement_rule.batch_steps(len(self._batches.steps)) * self._joined
        if self._warmup_rule is None:
            self._warmup_rule = WarmupRule(
                self._rule,
                step_seconds=float(walls[:, 0].max()),
                budget_left=self._budget_left,
            )
        return self._warmup_rule.batch_steps

    def _take(self, walls: Walls) -> None:
        if self._measurement_rule is None:
            self._warm_up(walls)
            return
        self._batches.add(walls)
        if self.measured >= MOST_STEPS:
            self.ended_by = StopRule.MAX_STEPS
            return
        if self._steps == "all":
            if len(self._batches.steps) >= _MOST_BATCHES:
                self._batches.halve()
                self._joined *= 2
            return
        self.ended_by = self._measurement_rule.ended_by(self._batches.of_group())

    def _warm_up(self, walls: Walls) -> None:
        self._warmup.add(walls)
        batches = self._warmup.of_group()
        if self._warmup_rule is None or not self._warmup_rule.is_over(batches):
            return
        self._is_steady = self._warmup_rule.is_steady(batches)
        self.first = self.warmup_steps
        left = self._budget_left
        if left is not None:
            left -= sum(batch.seconds for batch in batches)
        self._measurement_rule = MeasurementRule(
            self._asked(),
            step_seconds=batches[-1].seconds / batches[-1].steps,
            steps_per_epoch=1,
            budget_left=left,
        )

    def _asked(self) -> Measurement:
        """The rule, where the script asks for a number of steps with that number."""
        if not isinstance(self._steps, int):
            return self._rule
        return self._rule.model_copy(update={"measure_steps": self._steps, "measure_seconds": None})
