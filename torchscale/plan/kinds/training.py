"""Planning of training cells: the product of an experiment's axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from torchscale.catalog.models import find_model
from torchscale.config.choices import DeviceKind
from torchscale.config.experiment import Experiment
from torchscale.config.script import BATCH, PRECISION, ScriptChoice
from torchscale.config.sections.models import ModelChoice
from torchscale.config.strategy import OwnStrategy, strategy_label
from torchscale.plan.execution_target import ExecutionTarget, too_few_devices
from torchscale.plan.kinds import START_SECONDS, PlanRow
from torchscale.plan.obstacles import training_obstacle
from torchscale.schema.cells.script import OWN, Script
from torchscale.schema.cells.training import Loader, Measurement, SampleLengths, TrainingCell


def make_cells(
    experiment: Experiment,
    device: DeviceKind,
    counts: Sequence[int],
) -> list[TrainingCell]:
    """One for each combination of the axes; world sizes change fastest."""
    cells: list[TrainingCell] = []
    for choice in experiment.models:
        if isinstance(choice, ScriptChoice):
            cells += _script_cells(experiment, choice, counts)
        else:
            cells += _model_cells(experiment, choice, counts)
    return cells


def _script_cells(
    experiment: Experiment, choice: ScriptChoice, counts: Sequence[int]
) -> list[TrainingCell]:
    """One for each combination of what the script is told: an axis without a placeholder makes no
    cells."""
    training = experiment.training
    precisions = training.precision if choice.uses(PRECISION) else (OWN,)
    batch_sizes = experiment.batch_sizes if choice.uses(BATCH) else (None,)
    return [
        TrainingCell(
            model=choice.name,
            model_options=dict(zip(choice.axes, values, strict=True)),
            batch_size=batch_size,
            scaling=experiment.scaling,
            world_size=count,
            device=experiment.device,
            precision=precision,
            strategy=OwnStrategy(),
            optimizer=OWN,
            learning_rate=None,
            channels_last=False,
            compile=False,
            seed=training.seed,
            cudnn_benchmark=False,
            data_source=OWN,
            num_samples=0,
            measurement=_measurement(experiment),
            script=Script(form=choice.form, text=choice.text, steps=choice.steps),
        )
        for values in product(*choice.axes.values())
        for precision in precisions
        for batch_size in batch_sizes
        for count in counts
    ]


def _model_cells(
    experiment: Experiment, choice: ModelChoice, counts: Sequence[int]
) -> list[TrainingCell]:
    training, model, measurement = experiment.training, experiment.model, _measurement(experiment)
    return [
        TrainingCell(
            model=choice.name,
            model_options=experiment.options_of(choice),
            batch_size=batch_size,
            scaling=experiment.scaling,
            world_size=count,
            device=experiment.device,
            precision=precision,
            strategy=strategy,
            optimizer=optimizer,
            fused=fused,
            gradient_accumulation=accumulation,
            activation_checkpointing=checkpointing,
            gradient_clipping=training.gradient_clipping,
            deterministic=training.deterministic,
            learning_rate=training.learning_rate,
            channels_last=channels_last,
            compile=compiled,
            seed=training.seed,
            cudnn_benchmark=training.cudnn_benchmark,
            data_source=source,
            loader=None if source == "synthetic" else _loader(experiment),
            num_samples=experiment.data.num_samples,
            measurement=measurement,
            lengths=lengths,
        )
        for precision in training.precision
        for optimizer in training.optimizer
        for fused in training.fused
        for accumulation in training.gradient_accumulation
        for checkpointing in training.activation_checkpointing
        for strategy in experiment.parallel.strategy
        for channels_last in model.channels_last
        for compiled in model.compile
        for source in experiment.data.source
        for lengths in _lengths(experiment)
        for batch_size in experiment.batch_sizes
        for count in counts
    ]


def skip_reason(cell: TrainingCell, target: ExecutionTarget) -> str | None:
    """Too few devices, or a combination that this machine or torch cannot run."""
    return too_few_devices(cell, target) or training_obstacle(cell, target)


def expected_seconds(cell: TrainingCell) -> tuple[float, float]:
    """Start-up, warm-up and measurement. An epoch or a number of steps may take any time, up to the
    rule's cap."""
    rule = cell.measurement
    measured = (rule.min_seconds, rule.max_seconds)
    if rule.measure_seconds is not None:
        measured = (rule.measure_seconds, rule.measure_seconds)
    elif rule.measure_steps is not None:
        measured = (0.0, rule.max_seconds)
    shortest, longest = START_SECONDS
    return shortest + rule.warmup_seconds + measured[
        0
    ], longest + rule.warmup_max_seconds + measured[1]


def least_step_seconds(cell: TrainingCell, peak_flops: Mapping[str, float]) -> float:
    """FLOPs of a step, three times those of its forward pass, at the rate of its dtype; 0 where the
    model's are known only once it is built."""
    facts, rate = find_model(cell.model), peak_flops.get(cell.precision)
    if (
        facts is None
        or facts.forward_flops is None
        or rate is None
        or cell.model_options != facts.options
    ):
        return 0.0
    return 3 * facts.forward_flops * cell.global_batch_size / (rate * cell.world_size)


def table_row(cell: TrainingCell) -> PlanRow:
    """Model, batch, precision and strategy with its settings."""
    batch = "own" if cell.batch_size is None else f"{cell.batch_size}"
    if cell.scaling != "weak" and cell.batch_size is not None:
        batch += " global"
    strategy = " ".join([strategy_label(cell.strategy), *cell.settings])
    return PlanRow(cell.title, batch, str(cell.world_size), cell.precision, strategy)


def _measurement(experiment: Experiment) -> Measurement:
    fields = set(Measurement.model_fields) - {"epochs", "warmup_epochs"}
    training = experiment.training
    return Measurement(
        epochs=training.epochs,
        warmup_epochs=training.warmup_epochs,
        **experiment.benchmark.model_dump(include=fields),
    )


def _lengths(experiment: Experiment) -> tuple[SampleLengths | None, ...]:
    """One for each packing; without lengths there is nothing to pack."""
    lengths = experiment.data.lengths
    if lengths is None:
        return (None,)
    return tuple(
        SampleLengths(packing=packing, **lengths.model_dump())
        for packing in experiment.data.packing
    )


def _loader(experiment: Experiment) -> Loader:
    return Loader(**experiment.data.model_dump(include=set(Loader.model_fields)))
