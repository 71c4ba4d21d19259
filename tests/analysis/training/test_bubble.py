"""Bubbles of schedules, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import cells
from torchscale.analysis.training.bubble import bubble, computed_bubble
from torchscale.schema.cells.training import TrainingCell


def cell(world_size: int, **strategy: Any) -> TrainingCell:
    return cells(models="tiny-decoder", gpu_counts=world_size, parallel={"strategy": strategy})[0]


@pytest.mark.parametrize(
    ("world_size", "strategy", "expected"),
    [
        (4, {"name": "pipeline", "schedule": "gpipe", "microbatches": 8}, 3 / 11),
        (4, {"name": "pipeline", "schedule": "1f1b", "microbatches": 8}, 3 / 11),
        (4, {"name": "pipeline", "schedule": "interleaved", "microbatches": 8}, 3 / 19),
        (4, {"name": "model"}, 3 / 4),
        (8, {"name": "hybrid", "data": 4, "pipeline": 2, "microbatches": 4}, 1 / 5),
        (1, {"name": "pipeline"}, None),
        (4, {"name": "fsdp"}, None),
    ],
)
def test_what_a_schedule_makes_unavoidable(
    world_size: int, strategy: dict[str, Any], expected: float | None
) -> None:
    found = computed_bubble(cell(world_size, **strategy))
    assert found is None if expected is None else found == pytest.approx(expected)


def test_the_measured_share_is_of_the_passes_alone() -> None:
    two = cell(2, name="pipeline", microbatches=4)
    found = bubble(two, idle=2.0, forward=1.0, backward=5.0)
    assert found is not None
    assert found.measured == pytest.approx(0.25)
    assert bubble(two, idle=None, forward=1.0, backward=5.0) is None
    assert bubble(cell(2, name="ddp"), idle=2.0, forward=1.0, backward=5.0) is None
