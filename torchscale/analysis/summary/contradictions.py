"""What a record says twice, and differently: figures of such a launch are not shown.

Every file is of the right form when it gets here. A record that was damaged, edited by hand or
merged from two can still say that a rank ran twice, or that batches took a tenth of their steps.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from torchscale.schema.cells.collectives import CollectivesResult
from torchscale.schema.cells.kinds import AnyCell, AnyRank, as_kind
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.signals import SignalDigest
from torchscale.schema.launch.steps import Digest, RankSteps
from torchscale.schema.launch.training import TrainingResult
from torchscale.schema.run.content import CellRun
from torchscale.schema.state import State

_SAME_TIME = 0.1
"""Share by which two measurements of one time may differ: they come from the same clock, a few
calls apart."""
_MOST_BETWEEN = 20.0
"""Between batches a rank writes its steps and decides whether to go on: milliseconds, which can
exceed a batch of tiny steps, but never by this factor and :data:`_BETWEEN_SECONDS` a batch."""
_BETWEEN_SECONDS = 2.0
_ROUNDING = 1e-6
"""Of quantiles in a digest."""


def contradiction(cell_run: CellRun) -> str | None:
    """The first thing that a launch's record says against itself or against its cell; ``None``
    without any.

    Only launches that are ``ok`` are judged: of the others no figure is shown.
    """
    cell = cell_run.planned.cell
    for record in cell_run.launches:
        if record.state is State.OK:
            with np.errstate(
                all="ignore"
            ):  # of numbers that no measurement has, which is one of the things found
                found = next(_in_record(record, cell), None)
            if found is not None:
                return f"launch {record.launch}: {found}"
    return None


def _in_record(record: LaunchRecord, cell: AnyCell) -> Iterator[str]:
    ranks: Sequence[AnyRank] = record.payload.ranks
    yield from _about_ranks(ranks, cell.world_size)
    if record.failures:
        yield (
            f"its state is ok, and rank {record.failures[0].rank} failed "
            f"({record.failures[0].type})"
        )
    collectives, training = (
        as_kind(record.payload, CollectivesResult),
        as_kind(record.payload, TrainingResult),
    )
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
        if any(sample.wrong_elements for sample in rank.samples) or any(
            pair.wrong_elements for pair in rank.pairs
        ):
            yield f"its state is ok, and rank {rank.rank} received wrong elements"


def _about_training(
    record: LaunchRecord, result: TrainingResult, cell: TrainingCell
) -> Iterator[str]:
    ranks, measured = result.ranks, np.array([rank.batches.total_seconds for rank in result.ranks])
    for rank in ranks:
        yield from _about_rank(rank, cell)
    walls = np.array([rank.host_load.wall_seconds for rank in ranks])
    between = _BETWEEN_SECONDS * np.array([len(rank.batches) for rank in ranks])
    for place in np.flatnonzero(walls < measured * (1 - _SAME_TIME)).tolist():
        which = f"rank {ranks[place].rank}"
        yield (
            f"{which}: its batches took {measured[place]:.4g} s, the measurement {walls[place]:.4g} "
            "s"
        )
    for place in np.flatnonzero(walls > measured * _MOST_BETWEEN + between).tolist():
        which = f"rank {ranks[place].rank}"
        yield (
            f"{which}: its batches took {measured[place]:.4g} s of a measurement of "
            f"{walls[place]:.4g} s"
        )
    if len({rank.batches.steps for rank in ranks}) > 1:
        yield "its ranks measured batches of different lengths"
    if result.rank_steps and len(result.rank_steps) != len(ranks):
        yield f"steps of {len(result.rank_steps)} ranks, records of {len(ranks)}"
    elif result.rank_steps:
        yield from _about_rank_steps(ranks, measured, result.rank_steps)
    if result.steps is not None:
        yield from _about_digest(result.steps.seconds)
    if result.signals is not None:
        yield from _about_signals(result.signals, len(ranks))
    if ranks:
        longest = float((measured + [rank.warmup.seconds for rank in ranks]).max())
        if record.seconds < longest * (1 - _SAME_TIME):
            yield f"it took {record.seconds:g} s, and its warm-up and batches {longest:.4g} s"


def _about_rank(rank: RankRecord, cell: TrainingCell) -> Iterator[str]:
    if rank.samples_per_step != cell.per_device_batch_size:
        trained = f"rank {rank.rank} trained {rank.samples_per_step} samples a step"
        yield f"{trained}, its cell has {cell.per_device_batch_size}"
    if not rank.losses_finite:
        yield f"its state is ok, and a loss of rank {rank.rank} was not finite"
    if rank.parameters_equal is False:
        yield f"its state is ok, and rank {rank.rank} held other parameters than the rest"
    if not rank.parameters_changed:
        yield f"its state is ok, and no parameter of rank {rank.rank} changed"


def _about_rank_steps(
    ranks: Sequence[RankRecord], measured: NDArray[np.float64], steps: RankSteps
) -> Iterator[str]:
    """A rank's steps fill its batches."""
    counts, totals = np.array(steps.count), np.array([rank.batches.total_steps for rank in ranks])
    for place in np.flatnonzero(counts != totals).tolist():
        yield (
            f"rank {ranks[place].rank} measured {totals[place]} steps, and has the times of "
            f"{counts[place]}"
        )
    of_steps = counts * np.array(steps.mean)
    for place in np.flatnonzero(
        np.abs(measured - of_steps) > _SAME_TIME * np.maximum(measured, of_steps)
    ).tolist():
        which = f"rank {ranks[place].rank}"
        yield (
            f"{which}: its batches took {measured[place]:.4g} s, the steps in them "
            f"{of_steps[place]:.4g} s"
        )
    columns = {name: np.array(getattr(steps, name)) for name in (*_ASCENDING, "mean")}
    for place, found in _out_of_order(columns):
        yield f"steps of rank {ranks[place].rank}: {found}"


def _about_digest(digest: Digest) -> Iterator[str]:
    """Of the group's steps."""
    columns = {name: np.array([getattr(digest, name)]) for name in (*_ASCENDING, "mean")}
    for _, found in _out_of_order(columns):
        yield f"steps: {found}"
    kept = digest.values
    if kept and (len(kept) > digest.count or list(kept) != sorted(kept)):
        yield f"steps: its values are not those of {digest.count} steps in ascending order"


_ASCENDING = ("minimum", "p50", "p95", "p99", "maximum")


def _out_of_order(columns: Mapping[str, NDArray[np.float64]]) -> Iterator[tuple[int, str]]:
    """Digests whose quantiles do not ascend, or whose mean is not between their extremes: which,
    and what it says."""
    for name, following in itertools.pairwise(_ASCENDING):
        value, larger = columns[name], columns[following]
        for place in np.flatnonzero(value > larger * (1 + _ROUNDING)).tolist():
            yield (
                int(place),
                f"{name} {value[place]:.4g} s is above {following} {larger[place]:.4g} s",
            )
    mean, least, most = columns["mean"], columns["minimum"], columns["maximum"]
    for place in np.flatnonzero(
        (mean < least * (1 - _ROUNDING)) | (mean > most * (1 + _ROUNDING))
    ).tolist():
        yield (
            int(place),
            f"mean {mean[place]:.4g} s is not between {least[place]:.4g} and {most[place]:.4g} s",
        )


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
