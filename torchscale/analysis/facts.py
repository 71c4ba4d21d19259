"""What a report and a comparison need of a cell's records beside its figures, so that the records can be let go."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from torchscale.analysis.collectives import collective_figures
from torchscale.analysis.hardware import hardware_figures
from torchscale.analysis.launches import samples_per_second
from torchscale.analysis.telemetry import joules
from torchscale.schema.cell import DeviceKind
from torchscale.schema.collectives import CollectivesCell
from torchscale.schema.environment import RankPlace
from torchscale.schema.hardware import HardwareCell
from torchscale.schema.record import DataUse, LaunchRecord, State
from torchscale.schema.results import LARGEST, SMALLEST, LaunchFigures, Metric
from torchscale.schema.run import CellRun


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


@dataclass(frozen=True)
class CellFacts:
    """Of all launches of a cell that left a record.

    Attributes:
        device_kind: Of the ranks; ``None`` where none left a record.
        devices, torch, torchscale: Names and versions, as ranks said; sorted.
        nodes: Machines, by name.
        grouped: Whether any launch ran in processes that others had used.
        data: Which files batches came from, in the first launch that read any.
        alone_wall_seconds: What the windows without synchronisation took, of each launch that had them.
        started_at: Of the first launch.
        launches: What is compared, of each launch; empty unless the cell is ``ok``.
    """

    device_kind: DeviceKind | None = None
    devices: tuple[str, ...] = ()
    torch: tuple[str, ...] = ()
    torchscale: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    grouped: bool = False
    data: DataUse | None = None
    alone_wall_seconds: tuple[float, ...] = ()
    started_at: str = ""
    launches: tuple[LaunchFigures, ...] = ()


NO_FACTS = CellFacts()
"""Of a cell without records."""


def cell_facts(run: CellRun, state: State) -> CellFacts:
    """``state`` is the cell's: what is compared is of ``ok`` ones alone."""
    ranks = [rank for record in run.launches for rank in _places(record)]
    if not run.launches:
        return NO_FACTS
    fine = state is State.OK
    return CellFacts(
        device_kind=ranks[0].device.kind if ranks else None,
        devices=tuple(sorted({rank.device.name for rank in ranks})),
        torch=tuple(sorted({rank.versions.torch for rank in ranks})),
        torchscale=tuple(sorted({rank.versions.torchscale for rank in ranks})),
        nodes=_nodes(ranks),
        grouped=any(record.grouped for record in run.launches),
        data=next((rank.data for record in run.launches for rank in record.ranks if rank.data is not None), None),
        alone_wall_seconds=tuple(
            rank.signals.alone_wall_seconds
            for record in run.launches
            for rank in record.ranks[:1]
            if rank.signals is not None and rank.signals.alone_wall_seconds is not None
        ),
        started_at=min(record.started_at for record in run.launches),
        launches=tuple(launch_figures(run, record) for record in run.launches) if fine else (),
    )


def launch_figures(run: CellRun, record: LaunchRecord) -> LaunchFigures:
    """What one launch measured, for comparisons; never pooled steps."""
    measured = {key: value for key, value in _values(run, record).items() if value is not None}
    found = {key: value for key, value in measured.items() if SMALLEST <= value <= LARGEST}
    return LaunchFigures(started_at=record.started_at, values=found)


def _places(record: LaunchRecord) -> Sequence[RankPlace]:
    return (*record.ranks, *record.collectives, *record.hardware, *record.memory)


def _nodes(ranks: Sequence[RankPlace]) -> tuple[Node, ...]:
    by_host: dict[str, list[RankPlace]] = {}
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
        )
        for name, here in sorted(by_host.items())
    )


def _values(run: CellRun, record: LaunchRecord) -> dict[str, float | None]:
    cell = run.planned.cell
    if isinstance(cell, CollectivesCell):
        curves = () if cell.logs_choices else collective_figures(cell, [record]).curves
        return {f"{Metric.BUSBW.value}/{curve.operation}/{curve.dtype}": curve.peak.busbw for curve in curves}
    if isinstance(cell, HardwareCell):
        return _ceilings(record)
    if record.memory:
        return {Metric.MEMORY.value: max(rank.peak_bytes for rank in record.memory)}
    return _training(record) if record.ranks else {}


def _training(record: LaunchRecord) -> dict[str, float | None]:
    peaks = [peak for rank in record.ranks if (peak := rank.memory.peak_bytes) is not None]
    energy, steps = joules(record.telemetry), record.measured_steps
    samples = steps * sum(rank.samples_per_step for rank in record.ranks)
    return {
        Metric.THROUGHPUT.value: samples_per_second(record),
        Metric.STEP_P95.value: None if record.steps is None else record.steps.seconds.p95,
        Metric.MEMORY.value: max(peaks, default=None),
        Metric.ENERGY.value: None if not energy else samples / energy,
    }


def _ceilings(record: LaunchRecord) -> dict[str, float | None]:
    figures = hardware_figures([record])
    found: dict[str, float | None] = {f"{Metric.COMPUTE.value}/{one.dtype}": one.peak for one in figures.matmuls}
    copies: dict[str, list[float]] = {}
    for copy in figures.copies:
        pinned = "" if copy.pinned is None else "/pinned" if copy.pinned else "/pageable"
        copies.setdefault(f"{Metric.COPY.value}/{copy.kind}{pinned}", []).append(copy.bytes_per_second)
    return {**found, **{key: statistics.fmean(rates) for key, rates in copies.items()}}
