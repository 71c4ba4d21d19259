"""The steps of a watched job that figures count: all but the first ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.features.watch.job.attempts import Attempt
from torchscale.features.watch.job.host_load import HostLoadSamples
from torchscale.features.watch.job.script_records import MeasuredProgram
from torchscale.features.watch.job.settled import settled
from torchscale.schema.launch.steps import BatchTimes, StopRule, Warmup

_BATCHES = 48
"""Into which the steps are divided: a chart over time has a point of each."""
_BATCH_COLUMNS = 5
"""Of a batch at least. Ranks end a step at different times, and the slowest rank of a batch counts:
over many steps that adds nothing."""


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
