"""Before a sweep: whether cells are predicted to fit, and about how long all of it will take. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.schema.cell import Cell, Measurement
from torchscale.schema.collectives import CollectivesCell
from torchscale.schema.hardware import HardwareCell
from torchscale.schema.task import AnyCell

_START_SECONDS = (4.0, 30.0)
"""From the launcher to the first step, and from the last one to the record: from small models to large ones."""
_MEMORY_SECONDS = (4.0, 60.0)
_CALL_SECONDS = (5e-5, 5e-3)
"""What a call of a collective takes on the average over its sizes: on NVLink, and over a slow network."""


def sweep_seconds(cells: Sequence[AnyCell], repeats: int, cell_seconds: float | None) -> tuple[float, float]:
    """The least and the most that a sweep should take: floors of warm-up and measurement, and their caps."""
    bounds = [_cell_seconds(cell, cell_seconds) for cell in cells]
    return repeats * sum(low for low, _ in bounds), repeats * sum(high for _, high in bounds)


def _cell_seconds(cell: AnyCell, budget: float | None) -> tuple[float, float]:
    low, high = _MEMORY_SECONDS
    if isinstance(cell, Cell):
        least, most = _measurement_seconds(cell.measurement)
        low, high = _START_SECONDS[0] + least, _START_SECONDS[1] + most
    elif isinstance(cell, CollectivesCell):
        calls = len(cell.operations) * len(cell.dtypes) * len(cell.sizes) * (cell.warmup + 2 * cell.iterations)
        low, high = (start + calls * each for start, each in zip(_START_SECONDS, _CALL_SECONDS, strict=True))
    elif isinstance(cell, HardwareCell):
        figures = len(cell.matmul_dtypes) * (len(cell.matmul_sizes) + 1) + 6
        low, high = (start + figures * cell.seconds for start in _START_SECONDS)
    return (low, high) if budget is None else (min(low, budget), min(high, budget))


def _measurement_seconds(rule: Measurement) -> tuple[float, float]:
    """Warm-up and measurement; an epoch or a number of steps may take any time, up to the launch's own bound."""
    measured = (rule.min_seconds, rule.max_seconds)
    if rule.measure_seconds is not None:
        measured = (rule.measure_seconds, rule.measure_seconds)
    elif rule.measure_steps is not None:
        measured = (0.0, rule.max_seconds)
    return rule.warmup_seconds + measured[0], rule.warmup_max_seconds + measured[1]
