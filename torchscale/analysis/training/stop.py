"""Decides when warm-up and measurement end, from the batches so far; pure. Definitions in
``docs/method.md``."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchscale.analysis.stats.estimate import relative_half_width
from torchscale.schema.cells.training import Measurement
from torchscale.schema.launch.steps import Batch, StopRule

MIN_BATCHES = 10
"""A measurement has at least this many batches wherever its steps allow it: with fewer, the
interval of the mean is wide (t = 2.26 for ten batches, 2.78 for five)."""
_WARMUP_BATCH_STEPS = 10
"""Two batches are compared by their means; over ten steps, the variation of single steps averages
out."""
_WARMUP_SHARE_OF_BUDGET = 0.4
"""Most of a budget is left to the measurement."""
_MAX_BATCH_SECONDS = 15.0
"""A rank reports no progress within a batch: with longer ones, slow steps would look like a hang to
the launcher."""


class WarmupRule:
    """Warm-up takes at least the configured steps and seconds, then lasts until two batches in a
    row agree, up to a cap; or a number of epochs, if configured. ``cycle`` as in
    :class:`MeasurementRule`."""

    def __init__(
        self,
        rule: Measurement,
        *,
        step_seconds: float,
        steps_per_epoch: int = 1,
        budget_left: float | None,
        cycle: int = 1,
    ) -> None:
        self._rule = rule
        self._epoch_steps: int | None = None
        if rule.warmup_epochs is not None:
            self._epoch_steps = rule.warmup_epochs * steps_per_epoch
        self._cap = rule.warmup_max_seconds
        if budget_left is not None:
            self._cap = min(self._cap, _WARMUP_SHARE_OF_BUDGET * max(0.0, budget_left))
        fits = int(min(self._cap / MIN_BATCHES, _MAX_BATCH_SECONDS) / max(step_seconds, 1e-9))
        self.batch_steps = _whole_cycles(max(1, min(_WARMUP_BATCH_STEPS, fits)), cycle)
        if self._epoch_steps is not None:
            self.batch_steps = max(1, min(self.batch_steps, self._epoch_steps // 2))

    def is_steady(self, batches: Sequence[Batch]) -> bool:
        """Whether the last two batches' mean step times differ by no more than the tolerance."""
        if len(batches) < 2:
            return False
        before, last = (batch.seconds / batch.steps for batch in batches[-2:])
        return abs(last - before) <= self._rule.steady_tolerance * before

    def is_over(self, batches: Sequence[Batch]) -> bool:
        """Whether to stop warming up after ``batches``."""
        steps, seconds = _totals(batches)
        if self._epoch_steps is not None:
            return steps >= self._epoch_steps
        if batches and seconds + batches[-1].seconds > self._cap:
            return True
        enough = steps >= self._rule.warmup_steps and seconds >= self._rule.warmup_seconds
        return enough and self.is_steady(batches)


class MeasurementRule:
    """How many steps make each batch, and which rule ends the measurement.

    Batches are equally long. Where a fixed number of steps (or an epoch) cannot be cut evenly, they
    differ by one step.

    Args:
        rule: The cell's settings.
        step_seconds: Mean of the last warm-up batch.
        steps_per_epoch: Where ``rule.epochs`` is set.
        budget_left: Seconds that the launch's budget leaves for measuring.
        cycle: Steps after which the same samples come again. Where batches of free length are
            longer, they are whole cycles, so that they do the same work.
    """

    def __init__(
        self,
        rule: Measurement,
        *,
        step_seconds: float,
        steps_per_epoch: int,
        budget_left: float | None,
        cycle: int = 1,
    ) -> None:
        self._rule = rule
        self._cycle = cycle
        self._budget_left = budget_left
        self._fixed_steps = _fixed_steps(rule, steps_per_epoch)
        self._step_seconds = max(step_seconds, 1e-9)
        self._whole = steps_per_epoch if rule.epochs is not None else rule.measure_steps
        self._parts = 1 if self._whole is None else self._cut(self._whole)
        self._batch_steps = self._free_batch_steps()

    def batch_steps(self, done: int) -> int:
        """Steps of the next batch, once ``done`` batches are in."""
        if self._whole is None:
            return self._batch_steps
        part = done % self._parts
        return self._whole * (part + 1) // self._parts - self._whole * part // self._parts

    def ended_by(self, batches: Sequence[Batch]) -> StopRule | None:
        """The rule that ends the measurement after ``batches``, or ``None`` to go on."""
        steps, seconds = _totals(batches)
        next_seconds = batches[-1].seconds if batches else 0.0
        if self._fixed_steps is not None and steps >= self._fixed_steps:
            if self._rule.epochs is not None:
                return StopRule.EPOCHS
            return StopRule.MEASURE_STEPS
        if self._rule.measure_seconds is not None and seconds >= self._rule.measure_seconds:
            return StopRule.MEASURE_SECONDS
        if self._budget_left is not None and batches and seconds + next_seconds > self._budget_left:
            return StopRule.BUDGET
        if self._fixed_steps is not None or self._rule.measure_seconds is not None:
            return None
        return self._adaptive(batches, steps, seconds, next_seconds)

    def _adaptive(
        self, batches: Sequence[Batch], steps: int, seconds: float, next_seconds: float
    ) -> StopRule | None:
        """The rule that ends an adaptive measurement: the interval once the minima are reached, or
        a cap, also before them."""
        rule = self._rule
        if len(batches) >= MIN_BATCHES and steps >= rule.min_steps and seconds >= rule.min_seconds:
            half_width = relative_half_width([batch.seconds for batch in batches])
            if half_width is not None and half_width <= rule.target_half_width:
                return StopRule.CONVERGED
        if steps + self._batch_steps > rule.max_steps:
            return StopRule.MAX_STEPS
        if seconds + next_seconds > rule.max_seconds:
            return StopRule.MAX_SECONDS
        return None

    def _cut(self, whole: int) -> int:
        """Number of batches of a fixed number of steps: ten over the measurement, more where steps
        are slow."""
        fewest = math.ceil(MIN_BATCHES / (self._rule.epochs or 1))
        longest = max(min(_MAX_BATCH_SECONDS, self._budget() / MIN_BATCHES), self._step_seconds)
        return min(whole, max(fewest, math.ceil(whole * self._step_seconds / longest)))

    def _free_batch_steps(self) -> int:
        """Steps of a batch where the number of steps is not fixed."""
        rule, step_seconds = self._rule, self._step_seconds
        longest = int(_MAX_BATCH_SECONDS / step_seconds)
        if rule.measure_seconds is not None:
            whole = int(min(rule.measure_seconds, self._budget()) / MIN_BATCHES / step_seconds)
            return _whole_cycles(max(1, min(whole, longest)), self._cycle)
        needed = max(
            math.ceil(rule.min_steps / MIN_BATCHES),
            math.ceil(rule.min_seconds / MIN_BATCHES / step_seconds),
        )
        needed = math.ceil(needed / self._cycle) * self._cycle
        fits = min(rule.max_steps, min(rule.max_seconds, self._budget()) / step_seconds)
        return _whole_cycles(max(1, min(needed, int(fits / MIN_BATCHES), longest)), self._cycle)

    def _budget(self) -> float:
        if self._budget_left is None:
            return math.inf
        return max(0.0, self._budget_left)


def _whole_cycles(steps: int, cycle: int) -> int:
    """The most whole cycles within ``steps``; ``steps`` themselves where not even one fits."""
    if steps < cycle:
        return steps
    return steps - steps % cycle


def _fixed_steps(rule: Measurement, steps_per_epoch: int) -> int | None:
    if rule.epochs is not None:
        return rule.epochs * steps_per_epoch
    return rule.measure_steps


def _totals(batches: Sequence[Batch]) -> tuple[int, float]:
    return sum(batch.steps for batch in batches), math.fsum(batch.seconds for batch in batches)
