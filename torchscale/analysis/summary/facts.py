"""What a report and a comparison need of a cell's records beside its figures, so that the records
can be let go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from torchscale.analysis.summary.outcome import completed_launches
from torchscale.config.choices import DeviceKind
from torchscale.schema.base import LARGEST, SMALLEST
from torchscale.schema.cells.kinds import of_kind
from torchscale.schema.launch.hang import Autopsy
from torchscale.schema.launch.rank import DataUse
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.launch.transport import Transport, of_launches
from torchscale.schema.node.environment import HostAllocator, RankIdentity
from torchscale.schema.run.content import CellRun
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures
from torchscale.schema.run.step_parts import StepParts
from torchscale.schema.state import State


@dataclass(frozen=True)
class Node:
    """A machine as its ranks saw it."""

    hostname: str
    devices: tuple[str, ...]
    torch: str
    cuda: str | None
    nccl: str | None
    driver: str | None
    python: str
    threads: tuple[int, ...]
    allocator: HostAllocator | None


@dataclass(frozen=True)
class CellFacts:
    """Facts about a cell, from all of its completed launches.

    Attributes:
        device_kind: Kind of device of the ranks; ``None`` where none left a record.
        devices, torch, torchscale: Names and versions, as ranks said; sorted.
        backends: Backends of collectives, as ranks said; sorted.
        nodes: Machines, by name.
        node_count: Nodes of a launch, the most of any; those of one name are told apart by their
            rank.
        grouped: Whether any launch ran in processes that others had used.
        forked: Whether torchrun's agent and the ranks of any launch were forks of a process that
            had imported PyTorch.
        data: Which files batches came from, in the first launch that read any.
        unsynchronized_wall_seconds: Wall time of the windows without synchronization, for each
            launch that had them.
        started_at, ended_at: Start of the first launch, and end of the one that ended last; UTC,
            ISO 8601.
        failed: The launch that the cell's state comes from, where one failed, without what its
            ranks measured.
        transport: By what data moved, in any launch; ``None`` of one rank, and of records of
            earlier versions.
        launches: What is compared, of each launch; empty unless the cell has figures.
    """

    device_kind: DeviceKind | None = None
    devices: tuple[str, ...] = ()
    torch: tuple[str, ...] = ()
    torchscale: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    node_count: int = 1
    grouped: bool = False
    forked: bool = False
    data: DataUse | None = None
    unsynchronized_wall_seconds: tuple[float, ...] = ()
    started_at: str = ""
    ended_at: str = ""
    failed: LaunchRecord | None = None
    transport: Transport | None = None
    launches: tuple[LaunchFigures, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the machines."""
        return tuple(node.hostname for node in self.nodes)

    @property
    def autopsy(self) -> Autopsy | None:
        """The autopsy of the launch that failed, if it hung or its ranks' collectives did not fit
        together."""
        if self.failed is None:
            return None
        return self.failed.autopsy


NO_FACTS = CellFacts()
"""Facts of a cell without records."""


LaunchValues = Callable[[LaunchRecord], Mapping[MetricKey, float | None]]
"""What one launch measured, by the keys of a comparison; ``None`` was not measured."""


@dataclass(frozen=True)
class LaunchConditions:
    """Conditions under which one launch was measured, as in :class:`LaunchFigures`."""

    flags: tuple[str, ...] = ()
    other_processes: float | None = None
    delay: tuple[float, float] | None = None
    fixed_work: tuple[float, float] | None = None
    message_bytes: Mapping[MetricKey, int] = field(default_factory=dict)
    parts: StepParts | None = None


def no_conditions(record: LaunchRecord) -> LaunchConditions:
    """No conditions at all, for a kind of cell whose launches have no flags."""
    del record
    return LaunchConditions()


ConditionsOf = Callable[[LaunchRecord], LaunchConditions]


def cell_facts(
    run: CellRun,
    state: State,
    launch_values: LaunchValues,
    conditions_of: ConditionsOf = no_conditions,
    *,
    measured: Sequence[LaunchRecord] | None = None,
) -> CellFacts:
    """``state`` is the cell's. ``launch_values`` and ``conditions_of`` belong to its kind.
    ``measured`` are the launches that are compared: by default all, of a cell whose state has
    figures."""
    completed = completed_launches(run)
    if not completed:
        return NO_FACTS
    if measured is None:
        measured = completed if state.has_figures else ()
    return _run_facts(
        completed,
        failed=None if state.has_figures else _failed(completed, state),
        launches=[_launch_figures(record, launch_values, conditions_of) for record in measured],
    )


def _run_facts(
    completed: Sequence[LaunchRecord],
    *,
    failed: LaunchRecord | None = None,
    launches: Sequence[LaunchFigures] = (),
) -> CellFacts:
    """Where and how the launches ran, with what came of them."""
    ranks = [rank for record in completed for rank in record.payload.ranks]
    trained = of_kind((record.payload for record in completed), TrainingResult)
    return CellFacts(
        device_kind=next((rank.device.kind for rank in ranks), None),
        devices=tuple(sorted({rank.device.name for rank in ranks})),
        torch=tuple(sorted({rank.versions.torch for rank in ranks})),
        torchscale=tuple(sorted({rank.versions.torchscale for rank in ranks})),
        backends=tuple(sorted({rank.backend for rank in ranks if rank.backend is not None})),
        nodes=_nodes(ranks),
        node_count=max(1, *map(_node_count, completed)),
        grouped=any(record.grouped for record in completed),
        forked=any(record.forked for record in completed),
        data=next(
            (rank.data for result in trained for rank in result.ranks if rank.data is not None),
            None,
        ),
        unsynchronized_wall_seconds=tuple(_unsynchronized_wall_seconds(trained)),
        started_at=min(record.started_at for record in completed),
        ended_at=max(map(_end, completed)),
        failed=failed,
        transport=of_launches(record.transport for record in completed),
        launches=tuple(launches),
    )


def _node_count(record: LaunchRecord) -> int:
    return len({(rank.node_rank, rank.hostname) for rank in record.payload.ranks})


def _unsynchronized_wall_seconds(trained: Iterable[TrainingResult]) -> Iterator[float]:
    """Wall time of the windows without synchronization, from rank 0 of each launch that has it."""
    for result in trained:
        for rank in result.ranks[:1]:
            signals = rank.signals
            if signals is not None and signals.unsynchronized_wall_seconds is not None:
                yield signals.unsynchronized_wall_seconds


def _failed(completed: Sequence[LaunchRecord], state: State) -> LaunchRecord | None:
    for record in completed:
        if record.state is state:
            return record.model_copy(update={"payload": type(record.payload)()})
    return None


def _end(record: LaunchRecord) -> str:
    """End of a launch, in ISO 8601; its start where that is no time, as in a damaged record."""
    try:
        end = datetime.fromisoformat(record.started_at) + timedelta(seconds=record.seconds)
    except (ValueError, OverflowError):
        return record.started_at
    return end.isoformat(timespec="seconds")


def _launch_figures(
    record: LaunchRecord, launch_values: LaunchValues, conditions_of: ConditionsOf
) -> LaunchFigures:
    """What is compared of one launch; steps are never pooled over launches. A value that no
    measurement can have is left out, as one that is missing."""
    values = {key: value for key, value in launch_values(record).items() if value is not None}
    conditions = conditions_of(record)
    return LaunchFigures(
        started_at=record.started_at,
        values={key: value for key, value in values.items() if SMALLEST <= value <= LARGEST},
        flags=conditions.flags,
        other_processes=conditions.other_processes,
        delay=conditions.delay,
        fixed_work=conditions.fixed_work,
        message_bytes=dict(conditions.message_bytes),
        parts=conditions.parts,
    )


def _nodes(ranks: Sequence[RankIdentity]) -> tuple[Node, ...]:
    by_host: dict[str, list[RankIdentity]] = {}
    for rank in ranks:
        by_host.setdefault(rank.hostname, []).append(rank)
    return tuple(
        Node(
            hostname=name,
            devices=tuple(sorted({rank.device.name for rank in here})),
            torch=here[0].versions.torch,
            cuda=here[0].versions.cuda,
            nccl=here[0].versions.nccl,
            driver=here[0].versions.driver,
            python=here[0].versions.python,
            threads=tuple(sorted({rank.threads for rank in here})),
            allocator=here[0].allocator,
        )
        for name, here in sorted(by_host.items())
    )
