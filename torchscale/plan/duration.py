"""About how long a sweep will take. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from torchscale.plan.kinds import plan_kind
from torchscale.schema.cells.kinds import AnyCell

START_SECONDS = (4.0, 30.0)
"""From the launcher to the first step, and from the last one to the record: from small models to large ones."""


def sweep_seconds(cells: Sequence[AnyCell], repeats: int, cell_seconds: float | None) -> tuple[float, float]:
    """The least and the most that a sweep should take: floors of warm-up and measurement, and their caps."""
    bounds = [_cell_seconds(cell, cell_seconds) for cell in cells]
    return repeats * sum(low for low, _ in bounds), repeats * sum(high for _, high in bounds)


def _cell_seconds(cell: AnyCell, budget: float | None) -> tuple[float, float]:
    low, high = plan_kind(cell.kind).expected_seconds(cell)
    return (low, high) if budget is None else (min(low, budget), min(high, budget))
