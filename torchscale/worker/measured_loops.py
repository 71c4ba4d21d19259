"""The loops of warm-up and measurement over batches of steps, and what is added up in them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from time import monotonic

from torch import Tensor

from torchscale.analysis.training.stop import MeasurementRule, WarmupRule
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.documents import DocumentUse
from torchscale.schema.launch.progress import Phase, Progress
from torchscale.schema.launch.steps import (
    Batch,
    BatchTimes,
    EpochSample,
    StepSample,
    StopRule,
    Warmup,
)
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.measure.host import HostLoadMeter
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.signals import SignalCollector
from torchscale.worker.trainer import TimedBatch, Trainer

_BUDGET_RESERVE_SECONDS = 3.0
"""Seconds of a launch's budget that are kept for writing the record and for leaving the process
group."""
_STOP_RULES = tuple(StopRule)


class _Documents:
    """Adds up the documents of measured steps."""

    def __init__(self) -> None:
        self._steps = self._tokens = self._pairs = self._computed = 0

    def add(self, samples: Iterable[StepSample]) -> None:
        """The documents of these steps; nothing where they have none."""
        for sample in samples:
            step = sample.documents
            if step is None:
                continue
            self._steps += 1
            self._tokens += step.real_tokens_per_rank
            self._pairs += step.document_pairs_per_rank
            self._computed += step.computed_tokens_per_rank

    def means(self) -> DocumentUse | None:
        """Per step; ``None`` without any."""
        if not self._steps:
            return None
        return DocumentUse(
            real_tokens_per_step=self._tokens / self._steps,
            document_pairs_per_step=self._pairs / self._steps,
            computed_tokens_per_step=self._computed / self._steps,
        )


class MeasuredLoops:
    """The loops of warm-up and measurement over batches of steps. Between batches, rank 0 decides
    whether a loop ends."""

    def __init__(
        self, task: LaunchTask, cell: TrainingCell, ranks: Ranks, files: RankFiles, trainer: Trainer
    ) -> None:
        self._task, self._cell, self._ranks, self._files, self._trainer = (
            task,
            cell,
            ranks,
            files,
            trainer,
        )
        self._rule = cell.measurement
        self.losses_finite = True
        self.last_loss: float | None = None
        self.expert_tokens: Tensor | None = None
        self.documents = _Documents()
        self._epochs_done = 0
        samples = (
            ranks.broadcast_scalar(float(trainer.source.epoch_samples or 0)) or cell.num_samples
        )
        self._steps_per_epoch = max(1, int(samples) // cell.global_batch_size)

    def warm_up(self, first: TimedBatch) -> Warmup:
        """Run steps until their times are steady. They are recorded as warm-up, not as samples."""
        self._note_losses(first)
        second = self._run("warming up", 1, [])
        rule = WarmupRule(
            self._rule,
            step_seconds=second.batch.seconds,
            steps_per_epoch=self._steps_per_epoch,
            budget_left=self.budget_left(),
            cycle=self._trainer.cycle,
        )
        batch_steps = int(self._ranks.broadcast_scalar(rule.batch_steps))
        batches: list[Batch] = []
        is_over = False
        while not is_over:
            batches.append(self._run("warming up", batch_steps, batches).batch)
            is_over = bool(self._ranks.broadcast_scalar(rule.is_over(batches)))
        return Warmup(
            steps=2 + sum(batch.steps for batch in batches),
            seconds=first.batch.seconds
            + second.batch.seconds
            + math.fsum(batch.seconds for batch in batches),
            steady=bool(self._ranks.broadcast_scalar(rule.is_steady(batches))),
            batches=BatchTimes.of(batches),
        )

    def measure(
        self, warmup: Warmup, collector: SignalCollector, load: HostLoadMeter
    ) -> tuple[list[Batch], StopRule]:
        """Run the measured batches and write their steps. Returns the batches and the rule that
        ended the measurement."""
        steps_per_epoch = self._steps_per_epoch
        rule = MeasurementRule(
            self._rule,
            step_seconds=warmup.batches.seconds[-1] / warmup.batches.steps[-1],
            steps_per_epoch=steps_per_epoch,
            budget_left=self.budget_left(),
            cycle=self._trainer.cycle,
        )
        batches: list[Batch] = []
        epoch: list[StepSample] = []
        ended_by = None
        while ended_by is None:
            steps = int(self._ranks.broadcast_scalar(rule.batch_steps(len(batches))))
            timed = self._run("measuring", steps, batches)
            batches.append(timed.batch)
            collector.between(steps)
            load.between()
            self._files.steps(timed.samples)
            if timed.exchanges is not None:
                self._files.exchanges(timed.exchanges)
            self._note_expert_tokens(timed)
            self.documents.add(timed.samples)
            if self._rule.epochs is not None:
                epoch = self._note_epoch([*epoch, *timed.samples], steps_per_epoch)
            ended_by = self._broadcast_rule(rule.ended_by(batches))
        return batches, ended_by

    def _run(self, phase: Phase, steps: int, earlier: list[Batch]) -> TimedBatch:
        timed = self._trainer.run_batch(steps)
        self._note_losses(timed)
        done = [*earlier, timed.batch]
        count, seconds = (
            sum(batch.steps for batch in done),
            math.fsum(batch.seconds for batch in done),
        )
        rate = self._cell.global_batch_size * count / seconds
        self._files.progress(Progress(phase=phase, steps=count, samples_per_second=rate))
        return timed

    def _note_losses(self, timed: TimedBatch) -> None:
        self.losses_finite = self.losses_finite and timed.losses_finite
        self.last_loss = timed.samples[-1].loss

    def _note_expert_tokens(self, timed: TimedBatch) -> None:
        tokens, earlier = timed.expert_tokens, self.expert_tokens
        self.expert_tokens = tokens
        if tokens is not None and earlier is not None:
            self.expert_tokens = earlier + tokens

    def _note_epoch(self, samples: list[StepSample], steps_per_epoch: int) -> list[StepSample]:
        """Write the epoch if ``samples`` complete it. Returns the samples of the incomplete
        epoch."""
        if len(samples) < steps_per_epoch:
            return samples
        losses = [sample.loss for sample in samples if sample.loss is not None]
        seconds = math.fsum(sample.seconds for sample in samples)
        count = len(samples) * self._cell.global_batch_size
        self._files.epoch(
            EpochSample(
                epoch=self._epochs_done,
                steps=len(samples),
                seconds=seconds,
                samples=count,
                samples_per_second=count / seconds,
                mean_loss=math.fsum(losses) / len(losses) if losses else None,
            )
        )
        self._epochs_done += 1
        return []

    def _broadcast_rule(self, rule: StopRule | None) -> StopRule | None:
        code = -1
        if rule is not None:
            code = _STOP_RULES.index(rule)
        code = int(self._ranks.broadcast_scalar(code))
        if code < 0:
            return None
        return _STOP_RULES[code]

    def budget_left(self) -> float | None:
        """Seconds left of the launch's budget, less the reserve; ``None`` without a budget."""
        seconds, began = self._task.budget_seconds, self._task.budget_from
        if seconds is None or began is None:
            return None
        elapsed = monotonic() - began
        return max(0.0, seconds - elapsed - _BUDGET_RESERVE_SECONDS)
