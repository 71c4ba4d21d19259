"""What of a run a comparison needs: each launch's figures, where they were measured, how every cell
ended.

A baseline is this on disk: one JSON file that can be read, committed and compared years later.
"""

from __future__ import annotations

from pydantic import Field, model_validator

from torchscale.config.experiment import Experiment
from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    Frozen,
    Moment,
    Name,
    Positive,
    PositiveCount,
    Share,
)
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.exports.base import PublishedDocument
from torchscale.schema.launch.transport import Transport
from torchscale.schema.node.environment import Environment
from torchscale.schema.run.calibration import Calibration
from torchscale.schema.run.experiment_file import Session, refuse_repeated
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.step_parts import StepParts
from torchscale.schema.state import State


class LaunchFigures(Frozen):
    """What one launch measured.

    Attributes:
        started_at: UTC, ISO 8601.
        values: Positives by metric.
        flags: Cautions of this launch; ``None`` where only those of its cell were written.
        other_processes: Share of the cores' time that went to other processes; ``None`` where it
            was not read.
        delay: Shares of the measurement by which other processes delayed it, at least and at most;
            ``None`` where nothing bounds it.
        fixed_work: Processor time of a fixed piece of work between batches, in seconds: matrix
            products, a copy.
        message_bytes: Message size at which each bus bandwidth was reached.
        parts: Parts of a training launch's step; ``None`` where they are not known, and in files of
            earlier versions.
    """

    started_at: Moment = ""
    values: dict[MetricKey, Positive] = Field(default_factory=dict)
    flags: tuple[str, ...] | None = None
    other_processes: Share | None = None
    delay: tuple[Share, Share] | None = None
    fixed_work: tuple[Positive, Positive] | None = None
    message_bytes: dict[MetricKey, Count] = Field(default_factory=dict)
    parts: StepParts | None = None

    @model_validator(mode="after")
    def _check_delay(self) -> LaunchFigures:
        if self.delay is not None and self.delay[0] > self.delay[1]:
            low, high = self.delay
            raise ValueError(f"delay: the least, {low:g}, exceeds the most, {high:g}")
        return self


class ResultCell(Frozen):
    """A planned cell as a comparison sees it. ``device`` and ``torch`` are what its ranks said they
    ran on; ``transport`` is what their data moved by, ``None`` of a single rank and where no record
    says so; ``flags`` are cautions of any of its launches. ``nodes`` of a launch and ``backend`` of
    its collectives are ``None`` where nothing was measured, and in files of earlier versions."""

    cell: AnyCell
    state: State
    reason: str = ""
    flags: tuple[str, ...] = ()
    device: Name = ""
    torch: Name = ""
    transport: Transport | None = None
    nodes: PositiveCount | None = None
    backend: Name | None = None
    launches: tuple[LaunchFigures, ...] = ()

    @property
    def moved_by(self) -> str | None:
        """By what data moved, in a line; ``None`` where that is not known."""
        if self.transport is None or not self.transport.ways:
            return None
        return self.transport.text


class ResultSet(Frozen):
    """One side of a comparison.

    Attributes:
        schema_version: Schema version of this file.
        name: What tables call it.
        tool_version: torchscale that measured it.
        created_at: When its measurement began, UTC.
        environment, config, threads_per_rank: Settings of the run, the environment as it was at
            first; ``None`` for a record on its own.
        later: Commands that went on with it and measured, oldest first.
        cells: Cells in plan order.
        problems: What could not be read of the run.
        calibration: Thresholds of its cells, from A/A runs; ``None`` where it was not calibrated.
    """

    schema_version: Count = SCHEMA_VERSION
    name: str
    tool_version: Name = ""
    created_at: Moment = ""
    environment: Environment | None = None
    config: Experiment | None = None
    threads_per_rank: Count | None = None
    later: tuple[Session, ...] = ()
    cells: tuple[ResultCell, ...]
    problems: tuple[str, ...] = ()
    calibration: Calibration | None = None

    @model_validator(mode="after")
    def _check_cells(self) -> ResultSet:
        refuse_repeated("cells", [entry.cell.id for entry in self.cells])
        return self

    @property
    def sessions(self) -> tuple[Session, ...]:
        """All commands that measured it, oldest first; none where only a record is known."""
        if self.environment is None:
            return ()
        first = Session(
            started_at=self.created_at, tool_version=self.tool_version, environment=self.environment
        )
        return (first, *self.later)


class MachineResults(Frozen):
    """Results of several machines in one file, each as it would be in a file of its own: what
    others measured, to see where a machine lies among them.

    Attributes:
        schema_version: Schema version of this file.
        name: What tables call it.
        machines: One result set for each.
    """

    schema_version: Count = SCHEMA_VERSION
    name: str
    machines: tuple[ResultSet, ...]


DOCUMENT = PublishedDocument(
    ResultSet,
    SCHEMA_VERSION,
    "torchscale baseline",
    "One side of a comparison as a file: `torchscale compare --save`.",
)
