"""Parts of a launch that exceed the whole: figures of such a launch are not shown.

Every number is within the bounds of its type when it gets here. A record that was damaged, or merged
from two, can still say that batches took longer than the measurement that they are of.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from torchscale.schema.cells.checkpoint import CheckpointRank
from torchscale.schema.cells.collectives import CollectivesRank
from torchscale.schema.cells.hardware import HardwareRank
from torchscale.schema.cells.kinds import AnyCell, AnyRank, as_kind, of_kind
from torchscale.schema.cells.memory import MemoryRank
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.signals import SignalDigest
from torchscale.schema.launch.steps import Digest
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.run.content import CellRun
from torchscale.schema.state import State

_SLACK = 0.1
"""Share by which a part may exceed its whole: both are of one clock, read a few calls apart, or of
a device's clock and the host's."""
_BY_RANK = ("compute", "data_wait", "wait", "blame", "long_steps", "long_step_seconds_by_rank")

_Part = tuple[str, float, str, float]
"""Name and size of a part, name and size of its whole."""


def impossible(cell_run: CellRun) -> str | None:
    """The first thing that cannot be in a launch; ``None`` without any.

    Only launches that are ``ok`` are judged: of the others no figure is shown.
    """
    for record in cell_run.launches:
        found = record.state is State.OK and next(_in_launch(record, cell_run.planned.cell), None)
        if found:
            return f"launch {record.launch}: {found}"
    return None


def _in_launch(record: LaunchRecord, cell: AnyCell) -> Iterator[str]:
    if not _are_together(record, cell):
        yield f"it has not the records of {cell.world_size} ranks that ran together"
    result, trained = as_kind(record.payload, TrainingResult), as_kind(cell, TrainingCell)
    if result is None or trained is None:
        groups = [(f"rank {one.rank}", _machine_parts(one)) for one in record.payload.ranks]
    else:
        asked = math.inf if trained.batch_size is None else trained.per_device_batch_size
        groups = [(f"rank {one.rank}", _rank_parts(one, record, asked)) for one in result.ranks]
        groups.append(("steps", _step_parts(result)))
    for where, parts in groups:
        for name, part, of_whole, whole in parts:
            if part > whole * (1 + _SLACK):
                yield f"{where}: {part:.4g} {name}, {whole:.4g} {of_whole}"


def _are_together(record: LaunchRecord, cell: AnyCell) -> bool:
    """Each rank of the cell is there once, those of training with the same batches; what is stored
    by rank is of all of them. A watched job that ended before anything counted has none."""
    ranks: Sequence[AnyRank] = record.payload.ranks
    trained = as_kind(cell, TrainingCell)
    if trained is not None and trained.is_watched and not ranks:
        return True
    known = {rank.rank for rank in ranks if rank.rank < rank.world_size == cell.world_size}
    training = as_kind(record.payload, TrainingResult)
    if training is None:
        return len(known) == len(ranks) == cell.world_size
    by_rank = [getattr(training.signals, name, None) or () for name in _BY_RANK]
    series = {len(one) for one in (training.rank_steps, *by_rank)} <= {0, len(ranks)}
    batches = {rank.batches.steps for rank in training.ranks}
    return len(known) == len(ranks) and len(batches) <= 1 and series


def _machine_parts(rank: AnyRank) -> Iterator[_Part]:
    for swept in of_kind((rank,), CollectivesRank):
        for one in swept.samples:
            calls = sum(one.call_seconds) + len(one.call_seconds) * one.mean_seconds
            wall = getattr(one.host_load, "wall_seconds", math.inf)
            yield "seconds of calls", calls, "of the measurement", wall
    for rated in of_kind((rank,), HardwareRank):
        took = [(*product.warm_seconds, *product.cold_seconds) for product in rated.matmuls]
        total = sum(map(sum, (*took, *(copy.seconds for copy in rated.copies))))
        wall = getattr(rated.host_load, "wall_seconds", math.inf)
        yield "seconds of products and copies", total, "of the measurement", wall
    for stored in of_kind((rank,), MemoryRank):
        yield "bytes allocated", stored.peak_bytes, "reserved", stored.reserved_bytes or math.inf
    for saved in of_kind((rank,), CheckpointRank):
        for save in saved.saves:
            yield "seconds of a write", save.write_seconds, "of its save", save.seconds
            yield "seconds of a save", save.seconds, "without training", save.stop_seconds
        for load in saved.loads:
            yield "seconds of a read", load.read_seconds, "of its load", load.seconds


def _rank_parts(rank: RankRecord, record: LaunchRecord, asked: float) -> Iterator[_Part]:
    measured = rank.batches.total_seconds
    samples = rank.samples_per_step or asked
    yield "samples of a step", samples, "of its cell", asked
    yield "samples of its cell", asked, "of a step", samples
    yield "seconds of batches", measured, "of the measurement", rank.host_load.wall_seconds
    yield "seconds of ranks", rank.warmup.seconds + measured, "of the launch", record.seconds


def _step_parts(result: TrainingResult) -> Iterator[_Part]:
    """Steps, their phases and what they wait for."""
    steps = result.rank_steps
    phases = [column or (0,) * len(steps) for name, column in steps if name.startswith("mean_")]
    columns = zip(result.ranks, steps.count, steps.mean, *phases, strict=False)
    for rank, count, mean, *parts in columns:
        yield "seconds of steps", count * mean, "of their batches", rank.batches.total_seconds
        yield "seconds of batches", rank.batches.total_seconds, "of their steps", count * mean
        # Less is a flag of the cell; phases that take twice the step are of other steps.
        yield "half of its phases", sum(abs(part or 0) for part in parts) / 2, "of a step", mean
    if result.steps is not None:
        yield from _group_parts(result.steps.seconds, result.signals)


def _group_parts(steps: Digest, signals: SignalDigest | None) -> Iterator[_Part]:
    ascending = (steps.minimum, steps.p50, steps.p95, steps.p99, steps.maximum)
    for smaller, larger in (*itertools.pairwise(ascending), (steps.mean, steps.maximum)):
        yield "seconds of a shorter step", smaller, "of a longer one", larger
    if signals is not None:
        rows = (*signals.compute, *signals.data_wait, *(signals.wait or ()))
        for row in (*rows, signals.transfer or (), (signals.exposed_p95 or 0,)):
            yield "seconds of a part", max(row, default=0), "of the longest step", steps.maximum
