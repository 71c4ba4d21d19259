"""Planning of memory cells: one per training setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torchscale.config.choices import DeviceKind
from torchscale.config.experiment import Experiment
from torchscale.plan.execution_target import ExecutionTarget
from torchscale.plan.kinds import PlanRow, training
from torchscale.schema.cells.memory import MemoryCell

_SECONDS = (4.0, 60.0)
"""Estimates for a few steps of a small model, and of a large one whose memory is also predicted."""


def make_cells(
    experiment: Experiment, device: DeviceKind, counts: Sequence[int]
) -> list[MemoryCell]:
    """One per training setting; cells that differ only in how long training is measured are the
    same."""
    limit = experiment.memory.limit
    cells = [
        MemoryCell(training=cell, limit_bytes=limit)
        for cell in training.make_cells(experiment, device, counts)
    ]
    return list({cell.id: cell for cell in cells}.values())


def skip_reason(cell: MemoryCell, target: ExecutionTarget) -> str | None:
    """Why the training cell cannot run; ``None`` if it can."""
    if cell.training.script is not None:
        return "the memory of a script of your own is not measured: its model is not known here"
    return training.skip_reason(cell.training, target)


def expected_seconds(cell: MemoryCell) -> tuple[float, float]:
    """Start-up and a few steps, without and with a prediction."""
    return _SECONDS


def least_step_seconds(cell: MemoryCell, peak_flops: Mapping[str, float]) -> float:
    """That of the training cell."""
    return training.least_step_seconds(cell.training, peak_flops)


def table_row(cell: MemoryCell) -> PlanRow:
    """The training cell's under its own title."""
    return replace(training.table_row(cell.training), name=cell.title)
