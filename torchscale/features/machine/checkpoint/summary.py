"""Summaries of checkpoint cells."""

from __future__ import annotations

from torchscale.analysis.machine.checkpoint import checkpoint_figures
from torchscale.analysis.summary.facts import LaunchConditions, cell_facts
from torchscale.analysis.summary.machine import CheckpointSummary
from torchscale.analysis.summary.outcome import cell_outcome, completed_launches
from torchscale.analysis.training.flags import (
    OTHER_PROCESSES_LIMIT,
    Flag,
    bounded_share,
    foreign_share,
)
from torchscale.config.choices import Metric
from torchscale.schema.cells.checkpoint import CheckpointCell, CheckpointResult
from torchscale.schema.exports.checkpoint import Coldness
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.state import State
from torchscale.util.optional import optional


def summarize(
    cell_run: CellRun, cell: CheckpointCell, repeats: int | None, run: Run | None
) -> CheckpointSummary:
    """Rates and stops where every launch is ``ok``."""
    results = [payload(record, CheckpointResult) for record in completed_launches(cell_run)]
    state, reason = cell_outcome(cell_run, None)
    figures = None
    flags: set[Flag] = set()
    facts = cell_facts(cell_run, state, _launch_values, _conditions)
    if state is State.OK:
        figures = checkpoint_figures(results)
        flags = {Flag(name) for launch in facts.launches for name in launch.flags or ()}
        if figures.coldness is not Coldness.PROVED:
            flags.add(Flag.NOT_COLD)
    ordered = tuple(sorted(flags))
    return CheckpointSummary(cell, state, reason, len(results), figures, facts, ordered)


def without_figures(cell_run: CellRun, cell: CheckpointCell, reason: str) -> CheckpointSummary:
    """The state and reason of a cell whose records are not usable."""
    return CheckpointSummary(cell, State.INVALID, reason, len(cell_run.launches))


def flag_names(summary: CheckpointSummary) -> tuple[str, ...]:
    """``contended`` where other processes had part of the cores, ``not_cold`` where a load is not
    proved to come from the disk."""
    return tuple(flag.value for flag in summary.flags)


def _conditions(record: LaunchRecord) -> LaunchConditions:
    ranks = payload(record, CheckpointResult).ranks
    share = foreign_share([(rank.hostname, rank.host_load) for rank in ranks])
    flags: tuple[str, ...] = ()
    if share is not None and share > OTHER_PROCESSES_LIMIT:
        flags = (Flag.CONTENDED.value,)
    return LaunchConditions(flags, optional(bounded_share, share))


def _launch_values(record: LaunchRecord) -> dict[MetricKey, float | None]:
    """Medians over the repeats of the launch; of loads only if all are proved cold."""
    figures = checkpoint_figures([payload(record, CheckpointResult)])
    return {
        MetricKey(metric=Metric.SAVE): figures.save_bytes_per_second,
        MetricKey(metric=Metric.LOAD): figures.cold_bytes_per_second,
        MetricKey(metric=Metric.STOP): figures.stop_seconds,
        MetricKey(metric=Metric.STOP_ASYNC): figures.async_stop_seconds,
    }
