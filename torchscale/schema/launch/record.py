"""What a launch leaves behind: how it ended, and the payload of its kind of cell. Never an
interpretation."""

from __future__ import annotations

from typing import TypeVar

from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    Frozen,
    Integer,
    Moment,
    Seconds,
)
from torchscale.schema.cells.kinds import AnyPayload, as_kind
from torchscale.schema.launch.failure import RankFailure
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.launch.telemetry import Telemetry
from torchscale.schema.launch.transport import Transport
from torchscale.schema.state import State


class LaunchRecord(Frozen):
    """``record.json``: its presence says that the launch is complete. Written once, atomically,
    never changed.

    Attributes:
        schema_version: Schema version of this file.
        cell_id: Id of the cell.
        launch: Which repeat, from 0.
        state: How it ended.
        reason: One line for people; empty when ``ok``.
        started_at: UTC, ISO 8601.
        seconds: Wall time of the torchrun.
        command: argv of the torchrun, or of the process in whose fork torchrun's agent ran
            (``forked``).
        failures: What ranks said before they died, earliest first.
        exit_code: torchrun's; negative for a signal; ``None`` if it could not be started.
        grouped: Whether other cells ran before it in the same processes; ``seconds`` is then its
            own part.
        forked: Whether torchrun's agent ran in a fork of a process that had imported PyTorch, and
            its ranks in forks of it; else a ``torchrun`` command started new Python processes.
        nodes: Where its ranks ran; empty for a launch on a single node.
        log_tail: Last lines that the ranks and torchrun printed; kept only when not ``ok``.
        telemetry: Readings of the machine over the measured steps, of the first node where there
            are several; ``None`` where nothing was read.
        node_telemetry: Telemetry of each of ``nodes``, in their order; empty for a launch on a
            single node.
        autopsy: Why its ranks made no progress, or whose collectives did not fit together; ``None``
            for other ends.
        transport: By what its data moved; ``None`` for a single rank, and in records of earlier
            versions.
        payload: What its ranks measured, by the cell's kind; of a failed launch, from the ranks
            that left a record.
    """

    schema_version: Count = SCHEMA_VERSION
    cell_id: str
    launch: Count
    state: State
    reason: str = ""
    started_at: Moment
    seconds: Seconds
    command: tuple[str, ...] = ()
    failures: tuple[RankFailure, ...] = ()
    exit_code: Integer | None = None
    grouped: bool = False
    forked: bool = False
    nodes: tuple[LaunchNode, ...] = ()
    log_tail: str = ""
    telemetry: Telemetry | None = None
    node_telemetry: tuple[Telemetry | None, ...] = ()
    autopsy: Autopsy | None = None
    transport: Transport | None = None
    payload: AnyPayload

    @property
    def machine_telemetry(self) -> tuple[Telemetry | None, ...]:
        """Telemetry of each machine that the launch ran on."""
        if not self.nodes:
            return (self.telemetry,)
        return self.node_telemetry or (self.telemetry, *(None for _ in self.nodes[1:]))


P = TypeVar("P", bound=Frozen)


def payload(record: LaunchRecord, payload_class: type[P]) -> P:
    """The record's payload as ``payload_class``, for code that handles one kind of cell.

    Raises:
        ValueError: the record is of a launch of another kind.
    """
    expected = as_kind(record.payload, payload_class)
    if expected is None:
        raise ValueError(
            f"launch {record.launch} of {record.cell_id} has a payload of kind "
            f"{record.payload.kind}"
        )
    return expected
