"""The cell that is tuned: the only one of a config, in short launches."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.config.experiment import Experiment
from torchscale.config.script import ScriptChoice
from torchscale.config.sections.benchmark import PRESETS, BenchmarkSettings
from torchscale.config.strategies.data_parallel import Ddp
from torchscale.errors import MachineError, UsageError
from torchscale.features.decide.tune.memory import as_ddp
from torchscale.features.decide.tune.space import StrategySpace
from torchscale.measure.context import PlannedRun
from torchscale.schema.cells.kinds import of_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.experiment_file import PlannedCell


def for_tuning(experiment: Experiment, launch_seconds: float) -> Experiment:
    """The experiment with short launches: their noise is what the search deals with, by measuring
    several."""
    quick = {
        **PRESETS["quick"],
        "preset": "quick",
        "warmup_seconds": min(PRESETS["quick"]["warmup_seconds"], launch_seconds),
        "measure_seconds": launch_seconds,
        "sync_cuda": experiment.benchmark.sync_cuda,
        "log_step_times": False,
    }
    training = experiment.training.model_copy(update={"epochs": None, "warmup_epochs": None})
    profiling = experiment.profiling.model_copy(update={"enabled": False})
    return experiment.model_copy(
        update={
            "benchmark": BenchmarkSettings.model_validate(quick),
            "training": training,
            "profiling": profiling,
            "measure": ("training",),
        }
    )


def only_cell(planned: PlannedRun) -> TrainingCell:
    """The cell to be tuned.

    Raises:
        UsageError: there are several.
        MachineError: it cannot be run here.
    """
    cells = planned.plan.cells
    if len(cells) > 1:
        raise UsageError(
            f"tune takes one setting; this config has {len(cells)} cells",
            hint=_narrower(planned.experiment, cells),
        )
    if cells[0].skip_reason is not None:
        raise MachineError(cells[0].skip_reason)
    if any(isinstance(choice, ScriptChoice) for choice in planned.experiment.models):
        raise UsageError(
            "tune changes settings of built-in models; a script of your own sets its own",
            hint='measure its variants as axes: models: [{script: "train.py --lr {lr}", lr: [1, 2]}]',
        )
    (cell,) = of_kind([cells[0].cell], TrainingCell)
    if isinstance(cell.strategy, Ddp) and not cell.strategy.exchanges_gradients:
        raise UsageError(
            "comm_hook noop is no training", hint="start from a config that exchanges gradients"
        )
    return cell


def _narrower(experiment: Experiment, cells: Sequence[PlannedCell]) -> str:
    """Options that leave one value on each axis."""
    training = of_kind([entry.cell for entry in cells], TrainingCell)
    axes: dict[str, Sequence[str | int]] = {
        "--model": [cell.model for cell in training],
        "--gpus": [cell.world_size for cell in training],
        "--batch-size": [cell.batch_size or 0 for cell in training],
        "--precision": [cell.precision for cell in training],
        "--strategy": [cell.strategy.name for cell in training],
        "--optimizer": [cell.optimizer for cell in training],
    }
    several = [f"{option} {values[0]}" for option, values in axes.items() if len(set(values)) > 1]
    return (
        f"name one: {' '.join(several)}"
        if several
        else f"leave one value on each axis of {experiment.experiment_name}"
    )


def title_of(cell: TrainingCell, space: StrategySpace | None) -> str:
    """The cell in words, as a table of the search is titled."""
    ranks = f"{cell.world_size} rank{'s' * (cell.world_size > 1)}"
    if space is None:
        return f"{cell.title}, batch {cell.batch_size}, {ranks}, {cell.setting}"
    batch = f"global batch {cell.global_batch_size}"
    return f"{cell.title}, {batch}, {ranks}, {as_ddp(cell).setting}"
