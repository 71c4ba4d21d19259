"""The records of rounds → series of rates, each of one part of the node."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from torchscale.analysis.machine.collectives import collective_figures
from torchscale.analysis.training.flags import (
    bounded_share,
    foreign_share,
    gpus_are_shared,
)
from torchscale.analysis.training.throughput import samples_per_second
from torchscale.features.validate.acceptance.limits import COMPUTE, MEMORY, NODE
from torchscale.schema.cells.collectives import CollectivesCell, CollectivesResult
from torchscale.schema.cells.hardware import CopySample, HardwareRank, HardwareResult
from torchscale.schema.cells.kinds import AnyCell, as_kind
from torchscale.schema.launch.rank import HostLoad
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.node.acceptance import Conditions, Series
from torchscale.schema.node.environment import DeviceInfo, RankIdentity, bare_uuid
from torchscale.schema.state import State
from torchscale.util.text import ranges

_CACHED_SHARE = 0.05
"""Above this share of a file in memory, reading it back measures memory."""
_COPIES = {
    ("host_to_device", True): "copy to device (pinned)",
    ("device_to_host", True): "copy from device (pinned)",
    ("host_to_device", False): "copy to device (pageable)",
    ("device_to_host", False): "copy from device (pageable)",
    ("device", None): MEMORY,
}


@dataclass(frozen=True)
class RoundFigure:
    """A rate of one part in one round."""

    figure: str
    part: str
    unit: str
    rate: float
    device: str = ""
    uuids: tuple[str, ...] = ()


def round_figures(
    cell: AnyCell, record: LaunchRecord, numbers: Mapping[str, int]
) -> Iterator[RoundFigure]:
    """What one launch measured; nothing of one that is not ``ok``.

    Args:
        cell: What was asked.
        record: Its record.
        numbers: Number of each GPU as ``nvidia-smi`` shows it, by UUID as torch gives it.
    """
    if record.state is not State.OK:
        return
    hardware = as_kind(record.payload, HardwareResult)
    if hardware is not None:
        parts = _Parts(hardware.ranks, numbers)
        for rank in hardware.ranks:
            yield from _of_device(rank, parts)
    collectives, asked = as_kind(record.payload, CollectivesResult), as_kind(cell, CollectivesCell)
    if collectives is not None and asked is not None and not asked.logs_choices:
        yield from _of_links(asked, collectives, _Parts(collectives.ranks, numbers))
    training = as_kind(record.payload, TrainingResult)
    if training is not None:
        rate = samples_per_second(training)
        if rate is not None:
            device = training.ranks[0].device.name
            yield RoundFigure("training", NODE, "samples/s", rate, device)


def series_of(rounds: Sequence[Sequence[RoundFigure]]) -> tuple[Series, ...]:
    """A series for each figure of each part, in the order in which they were first measured."""
    firsts = {(each.figure, each.part): each for figures in rounds for each in reversed(figures)}
    order = dict.fromkeys((each.figure, each.part) for figures in rounds for each in figures)
    found = [{(each.figure, each.part): each.rate for each in figures} for figures in rounds]
    return tuple(
        Series.model_validate(
            {
                "figure": key[0],
                "part": key[1],
                "unit": firsts[key].unit,
                "device": firsts[key].device,
                "uuids": firsts[key].uuids,
                "values": tuple(rates.get(key) for rates in found),
            }
        )
        for key in order
    )


def round_conditions(records: Sequence[LaunchRecord], outside: Conditions) -> Conditions:
    """What the ranks saw of other processes, beside what is read from outside of them."""
    shares = []
    shared = outside.shared_gpus
    cpus = 0
    for record in records:
        ranks = _ranks(record)
        cpus = max(cpus, len({cpu for rank in ranks for cpu in rank.cpus}))
        share = _taken_share(_loads(record), outside.quota_cpus)
        if share is not None:
            shares.append(bounded_share(share))
        shared = shared or gpus_are_shared(record.machine_telemetry, ranks)
    return outside.model_copy(
        update={
            "foreign_share": max(shares, default=None),
            "cpus": cpus or None,
            "shared_gpus": shared,
        }
    )


def _taken_share(
    loads: Sequence[tuple[str, HostLoad | None]], quota_cpus: float | None
) -> float | None:
    """Share of the cores' time that others had. Under a quota others may use the rest of the cores:
    they took from the ranks no more than what these left of their quota."""
    share = foreign_share(loads) if loads else None
    known = [load for _, load in loads if load is not None]
    if share is None or quota_cpus is None or quota_cpus >= _cores(known):
        return share
    used = math.fsum(load.process_seconds for load in known)
    allowed = quota_cpus * max(load.wall_seconds for load in known)
    return min(share, 1 - used / allowed)


def _cores(loads: Sequence[HostLoad]) -> int:
    """Cores of all ranks of a node: pinned ranks have their own."""
    if all(load.pinned for load in loads):
        return sum(load.cores for load in loads)
    return max(load.cores for load in loads)


def rank_devices(records: Sequence[LaunchRecord]) -> Iterator[RankIdentity]:
    """Ranks of all launches."""
    for record in records:
        yield from _ranks(record)


def _ranks(record: LaunchRecord) -> tuple[RankIdentity, ...]:
    return tuple(record.payload.ranks)


def _loads(record: LaunchRecord) -> list[tuple[str, HostLoad | None]]:
    """Host loads of the ranks that compute: gloo's and NCCL's own threads are told apart from others
    in no launch that only sends."""
    hardware = as_kind(record.payload, HardwareResult)
    training = as_kind(record.payload, TrainingResult)
    if hardware is not None:
        return [(rank.hostname, rank.host_load) for rank in hardware.ranks]
    if training is not None:
        return [(rank.hostname, rank.host_load) for rank in training.ranks]
    return []


class _Parts:
    """Names of devices."""

    def __init__(self, ranks: Sequence[RankIdentity], numbers: Mapping[str, int]) -> None:
        self._numbers = numbers
        self._by_index = {rank.device.index: rank.device for rank in ranks}

    def name(self, rank: RankIdentity) -> str:
        """``GPU 2``, or the cores of a rank on CPUs."""
        if rank.device.kind == "cpu":
            return f"cores {ranges(rank.cpus)}"
        return f"GPU {self.number(rank.device)}"

    def number(self, device: DeviceInfo) -> int:
        """As ``nvidia-smi`` shows it where that is known, else as torch counts."""
        return self._numbers.get(bare_uuid(device.uuid or ""), device.index)

    def device(self, index: int) -> DeviceInfo | None:
        return self._by_index.get(index)


def _uuids(*devices: DeviceInfo | None) -> tuple[str, ...]:
    return tuple(bare_uuid(each.uuid) for each in devices if each is not None and each.uuid)


def _of_device(rank: HardwareRank, parts: _Parts) -> Iterator[RoundFigure]:
    """Products in each dtype at their best shape, copies, and the disk, which one rank measures: over
    the whole time. A median would not see that a quota or a fault holds a device back now and
    then."""
    name, device, uuids = parts.name(rank), rank.device.name, _uuids(rank.device)
    for dtype in dict.fromkeys(sample.dtype for sample in rank.matmuls):
        rates = [
            2.0 * math.prod((sample.m, sample.n, sample.k)) / statistics.fmean(sample.warm_seconds)
            for sample in rank.matmuls
            if sample.dtype == dtype
        ]
        yield RoundFigure(COMPUTE + dtype, name, "FLOP/s", max(rates), device, uuids)
    for sample in rank.copies:
        passes = 2 if sample.kind == "device" else 1
        rate = passes * sample.payload_bytes / statistics.fmean(sample.seconds)
        if sample.peer is not None:
            yield _peer_copy(rank, sample, rate, parts)
            continue
        figure = _COPIES[sample.kind, sample.pinned]
        yield RoundFigure(figure, name, "B/s", rate, device, uuids)
    if rank.disk is not None:
        rate = rank.disk.payload_bytes / rank.disk.write_seconds
        yield RoundFigure("disk write", NODE, "B/s", rate)
        if rank.disk.resident_share is not None and rank.disk.resident_share < _CACHED_SHARE:
            rate = rank.disk.payload_bytes / rank.disk.read_seconds
            yield RoundFigure("disk read", NODE, "B/s", rate)


def _peer_copy(rank: HardwareRank, sample: CopySample, rate: float, parts: _Parts) -> RoundFigure:
    peer = parts.device(sample.peer if sample.peer is not None else -1)
    to = "GPU ?" if peer is None else f"GPU {parts.number(peer)}"
    return RoundFigure(
        "copy between devices",
        f"{parts.name(rank)} → {to}",
        "B/s",
        rate,
        rank.device.name,
        _uuids(rank.device, peer),
    )


def _of_links(
    cell: CollectivesCell, result: CollectivesResult, parts: _Parts
) -> Iterator[RoundFigure]:
    """Bus bandwidth of each operation at its largest size, and the links of every two devices."""
    figures = collective_figures(cell, [result])
    ranks = {rank.rank: rank for rank in result.ranks}
    device = result.ranks[0].device.name
    for curve in figures.curves:
        point = curve.points[-1]
        if curve.operation != "barrier" and point.busbw > 0:
            name = curve.operation.replace("_", "-")
            yield RoundFigure(name, NODE, "B/s", point.busbw, device)
    for pair in figures.pairs:
        source, target = ranks[pair.source], ranks[pair.target]
        yield RoundFigure(
            "link",
            f"{parts.name(source)} → {parts.name(target)}",
            "B/s",
            pair.payload_bytes / pair.seconds,
            device,
            _uuids(source.device, target.device),
        )
