"""Planning of collectives cells: one per world size, algorithm and protocol."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torchscale.config.choices import DeviceKind
from torchscale.config.experiment import Experiment
from torchscale.plan.execution_target import ExecutionTarget, machine_obstacle
from torchscale.plan.kinds import START_SECONDS, PlanRow
from torchscale.schema.cells.collectives import CollectivesCell

_MAX_BYTES = {"cpu": 64 << 20}
_MAX_BYTES_ELSEWHERE = 1 << 30
"""Large enough for bandwidth rather than latency to set the time; on CPUs a sixteenth, so that a
sweep over gloo does not take sixteen times as long."""
_CALL_SECONDS = (5e-5, 5e-3)
"""Mean seconds of a call over all sizes: on NVLink, and over a slow network."""


def make_cells(
    experiment: Experiment, device: DeviceKind, counts: Sequence[int]
) -> list[CollectivesCell]:
    """One cell per world size, algorithm and protocol. On CUDA a short cell before each logs what
    NCCL chooses."""
    settings = experiment.collectives
    largest = settings.max_bytes or max(
        settings.min_bytes, _MAX_BYTES.get(device, _MAX_BYTES_ELSEWHERE)
    )
    cells = []
    for count in [count for count in counts if count > 1] or [2]:
        for algorithm in settings.algorithms or (None,):
            for protocol in settings.protocols or (None,):
                cell = CollectivesCell(
                    operations=settings.operations,
                    dtypes=settings.dtypes,
                    min_bytes=settings.min_bytes,
                    max_bytes=largest,
                    iterations=settings.iterations,
                    warmup=settings.warmup,
                    seconds=settings.seconds or None,
                    world_size=count,
                    device=experiment.device,
                    algorithm=algorithm,
                    protocol=protocol,
                )
                if device == "cuda":
                    cells.append(
                        cell.model_copy(update={"logs_choices": True, "iterations": 1, "warmup": 1})
                    )
                cells.append(cell)
    return cells


def skip_reason(cell: CollectivesCell, target: ExecutionTarget) -> str | None:
    """Why the machine has too few devices; ``None`` if it has enough."""
    return machine_obstacle(cell, target)


def expected_seconds(cell: CollectivesCell) -> tuple[float, float]:
    """Start-up and all calls: warm-up, the timed loop, and as many calls timed one by one; no longer
    than the sweep may take."""
    calls = (
        len(cell.operations)
        * len(cell.dtypes)
        * len(cell.sizes)
        * (cell.warmup + 2 * cell.iterations)
    )
    low, high = (min(cell.seconds or math.inf, calls * each) for each in _CALL_SECONDS)
    return START_SECONDS[0] + low, START_SECONDS[1] + high


def least_step_seconds(cell: CollectivesCell, peak_flops: Mapping[str, float]) -> float:
    """Not known."""
    return 0.0


def table_row(cell: CollectivesCell) -> PlanRow:
    """The row: title, world size and settings."""
    return PlanRow(cell.title, "", str(cell.world_size), "", " ".join(cell.settings))
