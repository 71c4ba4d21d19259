"""What of a run a comparison needs: each launch's figures, where they were measured, how every cell ended.

A baseline is this on disk: one JSON file that can be read, committed and compared years later.
"""

from __future__ import annotations

from enum import Enum
from typing import Annotated

from pydantic import AfterValidator, Field

from torchscale.schema.base import SCHEMA_VERSION, Frozen
from torchscale.schema.config import Experiment
from torchscale.schema.environment import Environment
from torchscale.schema.experiment import Sitting
from torchscale.schema.record import State
from torchscale.schema.task import AnyCell


class Metric(str, Enum):
    """What is compared; values are what options and files call it."""

    THROUGHPUT = "throughput"
    """Global samples per second."""
    STEP_P95 = "step-p95"
    """95th percentile of the group's step, seconds."""
    MEMORY = "memory"
    """Peak bytes of the fullest device."""
    ENERGY = "energy"
    """Samples per joule of all GPUs."""
    COST = "cost"
    """Samples per unit of money, from throughput and a price."""
    BUSBW = "busbw"
    """Highest bus bandwidth of a collective, bytes per second."""
    COMPUTE = "compute"
    """Peak rate of matrix products, FLOP/s of a device."""
    COPY = "copy"
    """Copies, bytes per second."""

    @property
    def higher_is_better(self) -> bool:
        """Whether more is better."""
        return self not in (Metric.STEP_P95, Metric.MEMORY)


SMALLEST, LARGEST = 1e-30, 1e30
"""No figure of a measurement lies beyond, in any unit of ours."""


def _of_a_metric(key: str) -> str:
    name = key.partition("/")[0]
    if name not in {metric.value for metric in Metric}:
        raise ValueError(f"{name[:40]!r} is no metric")
    return key


FigureKey = Annotated[str, AfterValidator(_of_a_metric)]
"""A metric, or a metric and what of it: ``busbw/all_reduce/fp32``."""
Figure = Annotated[float, Field(ge=SMALLEST, le=LARGEST)]


class LaunchFigures(Frozen):
    """What one launch measured."""

    started_at: str = ""
    values: dict[FigureKey, Figure] = Field(default_factory=dict)


class ResultCell(Frozen):
    """A planned cell as a comparison sees it. ``device`` and ``torch`` are what its ranks said they ran on; ``flags``
    are cautions of the measurement."""

    cell: AnyCell
    state: State
    reason: str = ""
    flags: tuple[str, ...] = ()
    device: str = ""
    torch: str = ""
    launches: tuple[LaunchFigures, ...] = ()


class ResultSet(Frozen):
    """One side of a comparison.

    Attributes:
        schema_version: Of this file.
        name: What tables call it.
        tool_version: torchscale that measured it.
        created_at: When its measurement began, UTC.
        environment, config, threads_per_rank: Of the run, the environment as it was at first; ``None`` for a record on
            its own.
        later: Commands that went on with it and measured, oldest first.
        cells: In plan order.
        problems: What could not be read of the run.
    """

    schema_version: int = SCHEMA_VERSION
    name: str
    tool_version: str = ""
    created_at: str = ""
    environment: Environment | None = None
    config: Experiment | None = None
    threads_per_rank: int | None = None
    later: tuple[Sitting, ...] = ()
    cells: tuple[ResultCell, ...]
    problems: tuple[str, ...] = ()

    @property
    def sittings(self) -> tuple[Sitting, ...]:
        """All commands that measured it, oldest first; none where only a record is known."""
        if self.environment is None:
            return ()
        first = Sitting(started_at=self.created_at, tool_version=self.tool_version, environment=self.environment)
        return (first, *self.later)
