"""Measures a training cell in one rank: build, first step, warm-up, measurement, record.

This file defines what is measured. It does not interpret: raw samples go into the record, and
analysis works on records.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from time import time as wall_clock

from torchscale.config.strategies.data_parallel import Ddp
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.rank import FlopCount, MemoryUse, RankRecord, Setup
from torchscale.schema.launch.steps import BatchTimes
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.identity import rank_identity
from torchscale.worker.measure.compilation import CompilationMeter
from torchscale.worker.measure.experts import use_of_experts
from torchscale.worker.measure.flops import UncountableError, count_by_length, count_flops
from torchscale.worker.measure.host import MemoryMeter, host_load_meter
from torchscale.worker.measure.parameters import compare_parameters, fingerprint
from torchscale.worker.measured_loops import MeasuredLoops
from torchscale.worker.models import build_workload, import_model
from torchscale.worker.models.interface import Workload
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.signals import SignalCollector
from torchscale.worker.trainer import Trainer

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
    launch = MeasuredLoops(task, cell, ranks, files, trainer)
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
