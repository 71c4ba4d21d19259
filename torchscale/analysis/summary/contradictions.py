"""What a record says twice, and differently: figures of such a launch are not shown.

Every file is of the right form when it gets here. A record that was damaged, edited by hand or merged from two can
still say that a rank ran twice, or that batches took a tenth of their steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from torchscale.schema.cells.collectives import CollectivesResult
from torchscale.schema.cells.kinds import AnyCell, AnyRank, as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.signals import RankSignals, SignalDigest
from torchscale.schema.launch.steps import Digest, StepDigest
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.run.content import CellRun
from torchscale.schema.state import State

_SAME_TIME = 0.1
"""Share by which two measurements of one time may differ: they come from the same clock, a few calls apart."""
_MOST_BETWEEN = 20.0
"""Between batches a rank writes its steps and decides whether to go on: milliseconds, which can exceed a batch of tiny
steps, but never by this factor and :data:`_BETWEEN_SECONDS` a batch."""
_BETWEEN_SECONDS = 2.0
_ROUNDING = 1e-6
"""Of quantiles in a digest."""


def contradiction(cell_run: CellRun) -> str | None:
    """The first thing that a launch's record says against itself or against its cell; ``None`` without any.

    Only launches that are ``ok`` are judged: of the others no figure is shown.
    """
    cell = cell_run.planned.cell
    for record in cell_run.launches:
        if record.state is State.OK:
            found = next(_in_record(record, cell), None)
            if found is not None:
                return f"launch {record.launch}: {found}"
    return None


def _in_record(record: LaunchRecord, cell: AnyCell) -> Iterator[str]:
    ranks: Sequence[AnyRank] = record.payload.ranks
    yield from _about_ranks(ranks, cell.world_size)
    if record.failures:
        yield f"its state is ok, and rank {record.failures[0].rank} failed ({record.failures[0].type})"
    collectives, training = as_kind(record.payload, CollectivesResult), as_kind(record.payload, TrainingResult)
    if collectives is not None:
        yield from _about_results(collectives)
    trained = as_kind(cell, TrainingCell)
    if training is None and len(ranks) < cell.world_size:
        yield f"its state is ok, and it has records of {len(ranks)} of {cell.world_size} ranks"
    if training is not None and trained is not None:
        yield from _about_training(record, training, trained)


def _about_ranks(ranks: Sequence[AnyRank], world_size: int) -> Iterator[str]:
    times = Counter(rank.rank for rank in ranks)
    for rank in ranks:
        if times[rank.rank] > 1:
            yield f"rank {rank.rank} is in it {times[rank.rank]} times"
        if not 0 <= rank.rank < world_size:
            yield f"rank {rank.rank} of {world_size} ranks"
        if rank.world_size != world_size:
            yield f"rank {rank.rank} ran among {rank.world_size} ranks, its cell has {world_size}"
        if rank.device.kind == "cpu" and "nccl" in (rank.backend or ""):
            yield f"rank {rank.rank} computed on a CPU and communicated by {rank.backend}"


def _about_results(result: CollectivesResult) -> Iterator[str]:
    for rank in result.ranks:
        if any(sample.wrong_elements for sample in rank.samples) or any(pair.wrong_elements for pair in rank.pairs):
            yield f"its state is ok, and rank {rank.rank} received wrong elements"


def _about_training(record: LaunchRecord, result: TrainingResult, cell: TrainingCell) -> Iterator[str]:
    for rank in result.ranks:
        yield from _about_rank(rank, cell)
    if len({tuple(batch.steps for batch in rank.batches) for rank in result.ranks}) > 1:
        yield "its ranks measured batches of different lengths"
    for rank, steps in zip(result.ranks, result.rank_steps, strict=False):
        yield from _about_times(rank, steps)
    if result.rank_steps and len(result.rank_steps) != len(result.ranks):
        yield f"steps of {len(result.rank_steps)} ranks, records of {len(result.ranks)}"
    if result.steps is not None:
        yield from _about_digest(result.steps.seconds, "steps")
    if result.signals is not None:
        yield from _about_signals(result.signals, len(result.ranks))
    if result.ranks:
        longest = max(rank.warmup.seconds + _measured(rank) for rank in result.ranks)
        if record.seconds < longest * (1 - _SAME_TIME):
            yield f"it took {record.seconds:g} s, and its warm-up and batches {longest:.4g} s"


def _about_rank(rank: RankRecord, cell: TrainingCell) -> Iterator[str]:
    which = f"rank {rank.rank}"
    if rank.samples_per_step != cell.per_device_batch_size:
        yield f"{which} trained {rank.samples_per_step} samples a step, its cell has {cell.per_device_batch_size}"
    if not rank.losses_finite:
        yield f"its state is ok, and a loss of {which} was not finite"
    if rank.parameters_equal is False:
        yield f"its state is ok, and {which} held other parameters than the rest"
    if not rank.parameters_changed:
        yield f"its state is ok, and no parameter of {which} changed"
    if rank.signals is not None:
        yield from _about_negative(rank.signals, which)
    measured, wall = _measured(rank), rank.host_load.wall_seconds
    if wall < measured * (1 - _SAME_TIME):
        yield f"{which}: its batches took {measured:.4g} s, the measurement {wall:.4g} s"
    if wall > measured * _MOST_BETWEEN + _BETWEEN_SECONDS * len(rank.batches):
        yield f"{which}: its batches took {measured:.4g} s of a measurement of {wall:.4g} s"


def _about_negative(signals: RankSignals, which: str) -> Iterator[str]:
    """Times and counts from 0 up."""
    for name, value in vars(signals).items():
        numbers = value if isinstance(value, tuple) else (value,)
        for number in numbers:
            if isinstance(number, (int, float)) and number < 0:
                yield f"{which}: {name} is below 0"
                break


def _about_times(rank: RankRecord, steps: StepDigest) -> Iterator[str]:
    """A rank's steps fill its batches."""
    digest, count = steps.seconds, sum(batch.steps for batch in rank.batches)
    if digest.count != count:
        yield f"rank {rank.rank} measured {count} steps, and has the times of {digest.count}"
    measured, of_steps = _measured(rank), digest.mean * digest.count
    if abs(measured - of_steps) > _SAME_TIME * max(measured, of_steps):
        yield f"rank {rank.rank}: its batches took {measured:.4g} s, the steps in them {of_steps:.4g} s"
    yield from _about_digest(digest, f"steps of rank {rank.rank}")


def _about_digest(digest: Digest, what: str) -> Iterator[str]:
    names = ("minimum", "p50", "p95", "p99", "maximum")
    values = [getattr(digest, name) for name in names]
    for name, value, following, larger in zip(names, values, names[1:], values[1:], strict=False):
        if value > larger * (1 + _ROUNDING):
            yield f"{what}: {name} {value:.4g} s is above {following} {larger:.4g} s"
    if not digest.minimum * (1 - _ROUNDING) <= digest.mean <= digest.maximum * (1 + _ROUNDING):
        yield f"{what}: mean {digest.mean:.4g} s is not between {digest.minimum:.4g} and {digest.maximum:.4g} s"
    kept = digest.values
    if kept and (len(kept) > digest.count or list(kept) != sorted(kept)):
        yield f"{what}: its values are not those of {digest.count} steps in ascending order"


def _about_signals(signals: SignalDigest, ranks: int) -> Iterator[str]:
    by_rank: dict[str, Sequence[object] | None] = {
        "compute": signals.compute,
        "data_wait": signals.data_wait,
        "wait": signals.wait,
        "blame": signals.blame,
        "long_steps": signals.long_steps,
        "long_step_seconds_by_rank": signals.long_step_seconds_by_rank,
    }
    for name, series in by_rank.items():
        if series is not None and len(series) != ranks:
            yield f"signals.{name} of {len(series)} ranks, records of {ranks}"
    p50, p95 = signals.exposed_p50, signals.exposed_p95
    if p50 is not None and p95 is not None and p50 > p95 * (1 + _ROUNDING):
        yield "signals: exposed_p50 is above exposed_p95"
    windows = signals.windows
    if windows is not None:
        lengths = {len(windows.steps), len(windows.wall_us)}
        lengths.update(len(row) for row in (*windows.compute_us, *windows.quiet_us))
        if len(lengths) > 1 or {len(windows.compute_us), len(windows.quiet_us)} != {ranks}:
            yield "signals.windows: its series differ in length"


def _measured(rank: RankRecord) -> float:
    return math.fsum(batch.seconds for batch in rank.batches)
