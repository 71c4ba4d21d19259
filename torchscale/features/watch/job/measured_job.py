"""The steps of a watched job that figures count: all but the first ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.exchanges.steps import JobSteps, WaitsBy
from torchscale.features.watch.analysis.step_log import StepLog
from torchscale.features.watch.job.attempts import Attempt
from torchscale.features.watch.job.host_load import HostLoadSamples
from torchscale.features.watch.job.script_records import MeasuredProgram
from torchscale.schema.launch.steps import BatchTimes, StopRule, Warmup
from torchscale.schema.watch.report import WatchedRank

LEFT_OUT = 10
"""First steps that no figure counts: allocators, caches, and DistributedDataParallel, which puts
its buckets in order in the second one, settle in them."""
_SHORTEST_JOB = 4 * LEFT_OUT
"""Steps of a job from which on its first ones are left out; one with fewer has figures of all, if
there are more than the first ones."""
_BATCHES = 48
"""Into which the steps are divided: a chart over time has a point of each."""
_BATCH_COLUMNS = 5
"""Of a batch at least. Ranks end a step at different times, and the slowest rank of a batch counts:
over many steps that adds nothing."""


def settled(log: StepLog | None) -> StepLog | None:
    """Without the first steps; ``None`` where there are no others."""
    if log is None or log.steps <= LEFT_OUT:
        return None
    table = log.between(LEFT_OUT, log.steps) if log.steps >= _SHORTEST_JOB else None
    return log if table is None else log.without(table)


def measured_job(attempt: Attempt, load: HostLoadSamples) -> MeasuredProgram | None:
    """The steps of an attempt that count; ``None`` without any."""
    log = settled(attempt.log)
    if attempt.log is None or log is None or log.table is None:
        return None
    table, early = log.table, attempt.log.between(0, log.table.first)
    edges = np.linspace(0, len(table), _batches(len(table)) + 1).round().astype(int)
    return MeasuredProgram(
        table,
        _in_batches(table, edges, log.per_column),
        [_warmup(early, row, log.per_column) for row in range(len(table.wall))],
        StopRule.PROGRAM,
        tuple(attempt.follower.streams.values()),
        load,
        per_column=log.per_column,
    )


def rank_means(attempt: Attempt, table: JobSteps) -> list[WatchedRank]:
    """The mean step of each rank, by what it consists of."""
    blame = table.blame.sum(axis=1)
    shares = blame / max(float(blame.sum()), 1e-12)
    by_lengths = table.waits_by is WaitsBy.LENGTHS
    own = table.calm - table.data if by_lengths else table.own
    knows_waits = table.waits_by is not WaitsBy.NOTHING
    knows_transfers = knows_waits and not by_lengths
    return [
        WatchedRank(
            rank=rank,
            host=stream.facts.host,
            pid=stream.facts.pid,
            own_seconds=max(0.0, float(own[row].mean())),
            data_seconds=float(table.data[row].mean()),
            wait_seconds=float(table.wait[row].mean()) if knows_waits else None,
            transfer_seconds=float(table.transfer[row].mean()) if knows_transfers else None,
            bubble_seconds=float(table.bubble[row].mean()),
            blame=float(shares[row]) if knows_waits else None,
            cpu_seconds=stream.use.cpu_seconds,
            peak_memory_bytes=stream.use.peak_memory_bytes,
            lost_calls=stream.use.lost_calls,
            recorders=stream.use.recorders,
            problem=stream.facts.problem,
        )
        for row, (rank, stream) in enumerate(attempt.follower.streams.items())
    ]


def _batches(columns: int) -> int:
    return max(1, min(_BATCHES, columns // _BATCH_COLUMNS))


def _in_batches(table: JobSteps, edges: NDArray[np.int64], per_column: int) -> list[BatchTimes]:
    """The batches of each row between these columns."""
    steps = tuple(int(count) for count in np.diff(edges) * per_column)
    seconds = np.add.reduceat(table.wall, edges[:-1], axis=1) * per_column
    return [BatchTimes(steps=steps, seconds=tuple(map(float, row))) for row in seconds]


def _warmup(early: JobSteps | None, row: int, per_column: int) -> Warmup:
    """The steps before."""
    steps = 0 if early is None else len(early) * per_column
    seconds = 0.0 if early is None else float(early.wall[row].sum()) * per_column
    return Warmup(steps=steps, seconds=seconds, steady=True, batches=BatchTimes.of(()))
