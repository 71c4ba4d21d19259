"""One launch of one cell, as one rank lives it: build, first step, warm up, measure, record.

This is the file that says what is measured. It measures and never interprets: raw samples go into the record, and
everything said about them is worked out later from records.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from torchscale.schema.cell import Cell
from torchscale.schema.progress import Phase, Progress
from torchscale.schema.record import (
    Batch,
    EpochSample,
    FlopCount,
    MemoryUse,
    RankRecord,
    Setup,
    StepSample,
    StopRule,
    Warmup,
)
from torchscale.schema.task import LaunchTask
from torchscale.worker.beside import Beside
from torchscale.worker.measure.compilation import CompilationMeter
from torchscale.worker.measure.flops import count_flops
from torchscale.worker.measure.host import HostLoadMeter, MemoryMeter, launch_cpus, usable_cpus
from torchscale.worker.measure.parameters import compare_parameters, fingerprint
from torchscale.worker.measure.stop import MeasurementRule, WarmupRule
from torchscale.worker.models import build_workload, import_model
from torchscale.worker.outbox import Outbox
from torchscale.worker.place import place_of
from torchscale.worker.ranks import Ranks
from torchscale.worker.trainer import TimedBatch, Trainer

_BUDGET_RESERVE_SECONDS = 3.0
"""Left of a launch's budget for the record and the end of the process group."""
_STOP_RULES = tuple(StopRule)


@dataclass(frozen=True)
class Started:
    """Seconds that starting took, until :func:`train` is called.

    ``memory_is_ours`` is false where an earlier cell of the same process has left its mark on the resident memory.
    """

    import_seconds: float
    process_group_seconds: float
    memory_is_ours: bool = True


def train(task: LaunchTask, cell: Cell, ranks: Ranks, outbox: Outbox, started: Started) -> RankRecord:
    """Run the cell and return this rank's raw samples: the phases of a launch, in order."""
    outbox.progress(Progress(phase="building"))
    build_started = time.perf_counter()
    import_model(cell)  # its libraries are not the model's memory
    memory = MemoryMeter(ranks.device)
    compilation = CompilationMeter() if cell.compile else None
    trainer = Trainer(cell, ranks, lambda: outbox.progress(Progress(phase="preparing data")))
    build_seconds = time.perf_counter() - build_started
    initial = fingerprint(trainer.module)

    outbox.progress(Progress(phase="warming up"))
    first = trainer.run_batch(1)
    comparison = compare_parameters(trainer.module, ranks)
    launch = _Launch(task, cell, ranks, outbox, trainer)
    warmup = launch.warm_up(first)
    # A first step whose fp16 gradients overflow is skipped and leaves equal parameters whatever was reduced.
    comparison = comparison if comparison.differing else compare_parameters(trainer.module, ranks)
    changed = initial != fingerprint(trainer.module)

    beside = Beside(ranks, trainer)
    beside.before()
    alone = task.cpu_sets is not None and task.own_cores
    load = HostLoadMeter(usable_cpus() if alone else launch_cpus(), pinned=alone)
    measured_from = time.time()
    batches, stop_rule = launch.measure(warmup, beside)
    measured_until = time.time()
    host_load, memory_use = load.read(), memory.read() if started.memory_is_ours else MemoryUse()
    signals = beside.after(launch.budget_left())
    outbox.progress(Progress(phase="finishing"))
    data_use = trainer.source.use()
    flops = _count_flops(cell) if ranks.rank == 0 and task.counts_flops else None
    if compilation is not None:
        compilation.stop()
    trainer.close()
    return RankRecord(
        **dict(place_of(task, ranks)),
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
        batches=tuple(batches),
        stop_rule=stop_rule,
        memory=memory_use,
        host_load=host_load,
        first_loss=first.samples[0].loss,
        last_loss=launch.last_loss,
        losses_finite=launch.losses_finite,
        parameters_changed=changed,
        parameters_equal=comparison.equal,
        parameters_differing=comparison.differing,
        signals=signals,
        data=data_use,
        measured_from=measured_from,
        measured_until=measured_until,
        flops=flops,
    )


def _count_flops(cell: Cell) -> FlopCount | None:
    """Of the cell's model; ``None`` for one that cannot be followed without values, which costs only MFU."""
    try:
        return count_flops(lambda: build_workload(cell))
    except Exception:  # noqa: BLE001 - whatever a user's model raises there, the measurement is done and counts
        return None


class _Launch:
    """The two loops over batches of steps. Rank 0 decides between batches when each ends; the others follow."""

    def __init__(self, task: LaunchTask, cell: Cell, ranks: Ranks, outbox: Outbox, trainer: Trainer) -> None:
        self._task, self._cell, self._ranks, self._outbox, self._trainer = task, cell, ranks, outbox, trainer
        self._rule = cell.measurement
        self.losses_finite = True
        self.last_loss: float | None = None
        self._epochs_done = 0
        samples = ranks.agree(float(trainer.source.epoch_samples or 0)) or cell.num_samples
        self._steps_per_epoch = max(1, int(samples) // cell.global_batch_size)

    def warm_up(self, first: TimedBatch) -> Warmup:
        """Steps until times are steady; none of them counts."""
        self._note_losses(first)
        probe = self._run("warming up", 1, [])
        rule = WarmupRule(
            self._rule,
            step_seconds=probe.batch.seconds,
            steps_per_epoch=self._steps_per_epoch,
            budget_left=self.budget_left(),
        )
        batch_steps = int(self._ranks.agree(rule.batch_steps))
        batches: list[Batch] = []
        over = False
        while not over:
            batches.append(self._run("warming up", batch_steps, batches).batch)
            over = bool(self._ranks.agree(rule.is_over(batches)))
        return Warmup(
            steps=2 + sum(batch.steps for batch in batches),
            seconds=first.batch.seconds + probe.batch.seconds + math.fsum(batch.seconds for batch in batches),
            steady=bool(self._ranks.agree(rule.is_steady(batches))),
            batches=tuple(batches),
        )

    def measure(self, warmup: Warmup, beside: Beside) -> tuple[list[Batch], StopRule]:
        """The batches that count, each with its steps written down, and what ended them."""
        steps_per_epoch = self._steps_per_epoch
        last = warmup.batches[-1]
        rule = MeasurementRule(
            self._rule,
            step_seconds=last.seconds / last.steps,
            steps_per_epoch=steps_per_epoch,
            budget_left=self.budget_left(),
        )
        batches: list[Batch] = []
        epoch: list[StepSample] = []
        ended_by = None
        while ended_by is None:
            steps = int(self._ranks.agree(rule.batch_steps(len(batches))))
            timed = self._run("measuring", steps, batches)
            batches.append(timed.batch)
            beside.between()
            self._outbox.steps(timed.samples)
            if self._rule.epochs is not None:
                epoch = self._note_epoch([*epoch, *timed.samples], steps_per_epoch)
            ended_by = self._agree_on(rule.ended_by(batches))
        return batches, ended_by

    def _run(self, phase: Phase, steps: int, so_far: list[Batch]) -> TimedBatch:
        timed = self._trainer.run_batch(steps)
        self._note_losses(timed)
        done = [*so_far, timed.batch]
        count, seconds = sum(batch.steps for batch in done), math.fsum(batch.seconds for batch in done)
        rate = self._cell.global_batch_size * count / seconds
        self._outbox.progress(Progress(phase=phase, steps=count, samples_per_second=rate))
        return timed

    def _note_losses(self, timed: TimedBatch) -> None:
        self.losses_finite = self.losses_finite and timed.losses_finite
        self.last_loss = timed.samples[-1].loss

    def _note_epoch(self, samples: list[StepSample], steps_per_epoch: int) -> list[StepSample]:
        """Write the epoch once its last batch is in; returns the samples that wait for the rest of theirs."""
        if len(samples) < steps_per_epoch:
            return samples
        losses = [sample.loss for sample in samples if sample.loss is not None]
        self._outbox.epoch(
            EpochSample(
                epoch=self._epochs_done,
                steps=len(samples),
                seconds=math.fsum(sample.seconds for sample in samples),
                samples=len(samples) * self._cell.global_batch_size,
                mean_loss=math.fsum(losses) / len(losses) if losses else None,
            )
        )
        self._epochs_done += 1
        return []

    def _agree_on(self, rule: StopRule | None) -> StopRule | None:
        code = int(self._ranks.agree(-1 if rule is None else _STOP_RULES.index(rule)))
        return None if code < 0 else _STOP_RULES[code]

    def budget_left(self) -> float | None:
        """Seconds; ``None`` without a budget."""
        if self._task.budget_seconds is None:
            return None
        elapsed = time.time() - self._task.started_at
        return max(0.0, self._task.budget_seconds - elapsed - _BUDGET_RESERVE_SECONDS)
