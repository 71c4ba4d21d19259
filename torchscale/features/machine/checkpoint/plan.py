"""Planning of checkpoint cells: one per training setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchscale.config.choices import DeviceKind
from torchscale.config.experiment import Experiment
from torchscale.config.strategies.data_parallel import Zero1
from torchscale.plan.execution_target import ExecutionTarget
from torchscale.plan.kinds import PlanRow, training
from torchscale.schema.cells.checkpoint import CheckpointCell

_SECONDS = (6.0, 600.0)
"""Estimates for a small model, and for ten times 10 GB at 0.2 GB/s, a slow network mount."""


def make_cells(
    experiment: Experiment, device: DeviceKind, counts: Sequence[int]
) -> list[CheckpointCell]:
    """One per training setting; cells that differ only in how long training is measured are the
    same."""
    settings = experiment.checkpoint
    cells = [
        CheckpointCell(
            training=cell,
            path=settings.path,
            repeats=settings.repeats,
            asynchronous=settings.asynchronous,
            steps=settings.steps,
            threads=settings.threads,
        )
        for cell in training.make_cells(experiment, device, counts)
    ]
    return list({cell.id: cell for cell in cells}.values())


def skip_reason(cell: CheckpointCell, target: ExecutionTarget) -> str | None:
    """Why the training cell cannot run, or its state cannot be saved in parts; ``None`` if it
    can."""
    if cell.training.script is not None:
        return "checkpoints of a script of your own are not measured: its state is not known here"
    if isinstance(cell.training.strategy, Zero1):
        return "zero1 keeps optimizer states that torch.distributed.checkpoint does not know"
    local = target.devices_per_node
    if cell.path is None and local is not None and cell.world_size > local:
        return "several nodes need a directory that all share: set checkpoint.path"
    return training.skip_reason(cell.training, target)


def expected_seconds(cell: CheckpointCell) -> tuple[float, float]:
    """Start-up, some steps, and the saves and loads."""
    return _SECONDS


def least_step_seconds(cell: CheckpointCell, peak_flops: Mapping[str, float]) -> float:
    """That of the training cell."""
    return training.least_step_seconds(cell.training, peak_flops)


def table_row(cell: CheckpointCell) -> PlanRow:
    """The training cell's under its own title."""
    return replace(training.table_row(cell.training), name=cell.title)
