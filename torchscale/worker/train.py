"""Measures a training cell in one rank: build, first step, warm-up, measurement, record.

This file defines what is measured. It does not interpret: raw samples go into the record, and
analysis works on records.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from time import monotonic, perf_counter
from time import time as wall_clock

from torch import Tensor

from torchscale.analysis.training.stop import MeasurementRule, WarmupRule
from torchscale.config.strategies.data_parallel import Ddp
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.documents import DocumentUse
from torchscale.schema.launch.progress import Phase, Progress
from torchscale.schema.launch.rank import FlopCount, MemoryUse, RankRecord, Setup
from torchscale.schema.launch.steps import (
    Batch,
    BatchTimes,
    EpochSample,
    StepSample,
    StopRule,
    Warmup,
)
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.identity import rank_identity
from torchscale.worker.measure.compilation import CompilationMeter
from torchscale.worker.measure.experts import use_of_experts
from torchscale.worker.measure.flops import UncountableError, count_by_length, count_flops
from torchscale.worker.measure.host import HostLoadMeter, MemoryMeter, host_load_meter
from torchscale.worker.measure.parameters import compare_parameters, fingerprint
from torchscale.worker.models import build_workload, import_model
from torchscale.worker.models.interface import Workload
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.signals import SignalCollector
from torchscale.worker.trainer import TimedBatch, Trainer

_BUDGET_RESERVE_SECONDS = 3.0
"""Seconds of a launch's budget that are kept for writing the record and for leaving the process
group."""
_STOP_RULES = tuple(StopRule)
_REASON_CHARACTERS = 160
"""Maximum number of characters of an error's first line: two lines of a terminal."""


@dataclass(frozen=True)
class Started:
    """Seconds that starting took, until :func:`train` is called.

    ``memory_is_ours`` is false where resident memory includes that of an earlier launch in the same
    process.
    """

    import_seconds: float
    process_group_seconds: float
    memory_is_ours: bool = True


def train(
    task: LaunchTask, cell: TrainingCell, ranks: Ranks, files: RankFiles, started: Started
) -> RankRecord:
    """Run the cell and return this rank's raw samples: the phases of a launch, in order."""
    files.progress(Progress(phase="building"))
    build_started = perf_counter()
    import_model(cell)  # its libraries are not the model's memory
    memory = MemoryMeter(ranks.device)
    compilation = CompilationMeter() if cell.compile else None
    trainer = Trainer(cell, ranks, lambda: files.progress(Progress(phase="preparing data")))
    build_seconds = perf_counter() - build_started
    initial = fingerprint(trainer.named_parameters)

    files.progress(Progress(phase="warming up"))
    first = trainer.run_batch(1)
    comparison = compare_parameters(trainer.named_parameters, ranks)
    launch = _Launch(task, cell, ranks, files, trainer)
    warmup = launch.warm_up(first)
    # A first step whose fp16 gradients overflow is skipped and leaves equal parameters whatever was
    # reduced.
    if not comparison.differing:
        comparison = compare_parameters(trainer.named_parameters, ranks)
    changed = initial != fingerprint(trainer.named_parameters)

    collector = SignalCollector(ranks, trainer)
    collector.before()
    load = host_load_meter(task, with_fixed_work=ranks.device.type == "cpu")
    measured_from = wall_clock()
    batches, stop_rule = launch.measure(warmup, collector, load)
    measured_until = wall_clock()
    host_load, memory_use = load.read(), MemoryUse()
    if started.memory_is_ours:
        memory_use = memory.read()
    signals = collector.after(launch.budget_left())
    files.progress(Progress(phase="finishing"))
    data_use = trainer.source.use()
    experts = None
    if launch.expert_tokens is not None:
        steps, degree = sum(batch.steps for batch in batches), cell.degrees.expert
        experts = use_of_experts(trainer.expert_layers, launch.expert_tokens, steps, degree, ranks)
    flops, flops_unknown = None, ""
    if ranks.rank == 0 and task.counts_flops:
        flops, flops_unknown = _count_flops(cell)
    if compilation is not None:
        compilation.stop()
    trainer.close()
    exchanges = not isinstance(cell.strategy, Ddp) or cell.strategy.exchanges_gradients
    return RankRecord(
        **dict(rank_identity(task, ranks)),
        parameters=trainer.parameters,
        samples_per_step=cell.per_device_batch_size,
        tokens_per_step=trainer.tokens_per_step,
        setup=Setup(
            import_seconds=started.import_seconds,
            process_group_seconds=started.process_group_seconds,
            build_seconds=build_seconds,
            first_step_seconds=first.batch.seconds,
            compile_seconds=None if compilation is None else compilation.seconds,
        ),
        warmup=warmup,
        batches=BatchTimes.of(batches),
        stop_rule=stop_rule,
        memory=memory_use,
        host_load=host_load,
        first_loss=first.samples[0].loss,
        last_loss=launch.last_loss,
        losses_finite=launch.losses_finite,
        parameters_changed=changed,
        parameters_equal=comparison.equal if exchanges else None,
        parameters_differing=comparison.differing if exchanges else None,
        signals=signals,
        data=data_use,
        measured_from=measured_from,
        measured_until=measured_until,
        flops=flops,
        flops_unknown=flops_unknown,
        active_parameters=trainer.active_parameters,
        experts=experts if ranks.rank == 0 else None,
        documents=launch.documents.means(),
    )


def _count_flops(cell: TrainingCell) -> tuple[FlopCount | None, str]:
    """FLOPs of the cell's model; ``None`` and why for one that cannot run on the meta device, which
    then has no MFU."""
    length = cell.model_options.get("sequence_length")
    try:
        if cell.lengths is not None and isinstance(length, int):
            return count_by_length(lambda tokens: _build_for(cell, tokens), length), ""
        return count_flops(lambda: build_workload(cell)), ""
    except UncountableError as error:
        return None, str(error)
    except Exception as error:  # noqa: BLE001 - whatever a user's model raises there, the measurement is done and counts
        first = next(iter(str(error).splitlines()), "")[:_REASON_CHARACTERS]
        return None, f"it does not run on the meta device: {type(error).__name__}: {first}"


def _build_for(cell: TrainingCell, length: int) -> Workload:
    """The cell's model for samples of ``length`` tokens."""
    options = {**cell.model_options, "sequence_length": length}
    return build_workload(cell.model_copy(update={"model_options": options}))


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


class _Launch:
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
