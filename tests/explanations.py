"""Sides of explained comparisons, made to measure for tests."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tests.factories import cells, environment, experiment
from torchscale.config.choices import Metric
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.explanation import ExplainedCell, explain
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures, ResultCell, ResultSet
from torchscale.schema.run.step_parts import OutsidePart, StepPart, StepParts
from torchscale.schema.state import State

NOISE = (-1e-4, 0.0, 1e-4, 5e-5)
"""Seconds that the launches of a side differ by in each part."""
PHASES = {
    StepPart.DATA_WAIT: 0.001,
    StepPart.FORWARD: 0.01,
    StepPart.BACKWARD: 0.02,
    StepPart.OPTIMIZER: 0.003,
    StepPart.COMMUNICATION: 0.004,
}
RANKS = (0.0005, 0.0005)
OUTSIDE = {OutsidePart.IMPORTS: 3.0, OutsidePart.BUILD: 1.0, OutsidePart.WARM_UP: 2.0}


def two_devices() -> TrainingCell:
    """A cell of two ranks."""
    return cells(gpu_counts=[1, 2])[-1]


def parts(
    phases: Mapping[StepPart, float] | None = None,
    ranks: Sequence[float] = RANKS,
    noise: float = 0.0,
    **changes: Any,
) -> StepParts:
    """A launch whose parts took this long, and the others as in ``PHASES``; 1 ms of rest."""
    taken = {part: seconds + noise for part, seconds in {**PHASES, **(phases or {})}.items()}
    by_rank = tuple(seconds + noise / len(ranks) for seconds in ranks)
    step = math.fsum(taken.values()) + math.fsum(by_rank) + 0.001
    defaults = {
        "outside_seconds": 8.0 + noise,
        "outside": OUTSIDE,
        "later_in": {StepPart.FORWARD: 0.0001},
    }
    return StepParts(step=step, parts=taken, by_rank=by_rank, **{**defaults, **changes})


def measured(
    phases: Mapping[StepPart, float] | None = None,
    ranks: Sequence[float] = RANKS,
    *,
    noise: Sequence[float] = NOISE,
    cell: TrainingCell | None = None,
    launch: Mapping[str, Any] | None = None,
    **changes: Any,
) -> ResultCell:
    """A cell with a launch for each of ``noise``; ``launch`` are further fields of each of them,
    ``changes`` of their parts."""
    found = [parts(phases, ranks, one, **changes) for one in noise]
    launches = tuple(
        LaunchFigures(
            values={MetricKey(metric=Metric.THROUGHPUT): 1 / one.step}, parts=one, **(launch or {})
        )
        for one in found
    )
    return ResultCell(
        cell=cell or two_devices(),
        state=State.OK,
        device="NVIDIA H100",
        torch="2.13.0",
        launches=launches,
    )


def side(*found: ResultCell, name: str = "side", **changes: Any) -> ResultSet:
    """A side with these cells; ``changes`` are of its environment."""
    return ResultSet(
        name=name,
        cells=found,
        environment=environment(8, **changes),
        config=experiment(),
        tool_version="0.1.0",
    )


def explained(before: ResultCell, after: ResultCell, **changes: Any) -> ExplainedCell:
    """The one cell of two sides, explained; ``changes`` are of the second side's environment."""
    sides = side(before, name="before"), side(after, name="after", **changes)
    (cell,) = explain(compare(*sides)).cells
    return cell
