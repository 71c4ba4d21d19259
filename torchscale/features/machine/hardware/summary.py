"""Summaries of hardware cells."""

from __future__ import annotations

import statistics

from torchscale.analysis.machine.hardware import hardware_figures
from torchscale.analysis.summary.facts import LaunchConditions, cell_facts
from torchscale.analysis.summary.machine import HardwareSummary
from torchscale.analysis.summary.outcome import cell_outcome, completed_launches
from torchscale.analysis.training.flags import (
    OTHER_PROCESSES_LIMIT,
    Flag,
    bounded_share,
    foreign_share,
    gpus_are_shared,
)
from torchscale.config.choices import Metric
from torchscale.schema.cells.hardware import HardwareCell, HardwareResult
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.state import State
from torchscale.util.optional import optional


def summarize(
    cell_run: CellRun, cell: HardwareCell, repeats: int | None, run: Run | None
) -> HardwareSummary:
    """Peak rates where every launch is ``ok``."""
    results = [payload(record, HardwareResult) for record in completed_launches(cell_run)]
    state, reason = cell_outcome(cell_run, None)
    figures = None
    if state is State.OK:
        figures = hardware_figures(results)
    facts = cell_facts(cell_run, state, _launch_values, _conditions)
    flags = tuple(sorted({Flag(name) for launch in facts.launches for name in launch.flags or ()}))
    return HardwareSummary(cell, state, reason, len(results), figures, facts, flags)


def without_figures(cell_run: CellRun, cell: HardwareCell, reason: str) -> HardwareSummary:
    """The state and reason of a cell whose records are not usable."""
    return HardwareSummary(cell, State.INVALID, reason, len(cell_run.launches))


def flag_names(summary: HardwareSummary) -> tuple[str, ...]:
    """``contended`` where other processes had part of the cores or GPUs."""
    return tuple(flag.value for flag in summary.flags)


def _conditions(record: LaunchRecord) -> LaunchConditions:
    ranks = payload(record, HardwareResult).ranks
    share = foreign_share([(rank.hostname, rank.host_load) for rank in ranks])
    busy = share is not None and share > OTHER_PROCESSES_LIMIT
    flags: tuple[str, ...] = ()
    if busy or gpus_are_shared(record.machine_telemetry, ranks):
        flags = (Flag.CONTENDED.value,)
    return LaunchConditions(flags, optional(bounded_share, share))


def _launch_values(record: LaunchRecord) -> dict[MetricKey, float | None]:
    """Peak of each dtype's products, and the mean rate of each kind of copy."""
    figures = hardware_figures([payload(record, HardwareResult)])
    values: dict[MetricKey, float | None] = {
        MetricKey(metric=Metric.COMPUTE, dtype=rates.dtype): rates.peak for rates in figures.matmuls
    }
    copies: dict[MetricKey, list[float]] = {}
    for copy in figures.copies:
        key = MetricKey(metric=Metric.COPY, copy_kind=copy.kind, pinned=copy.pinned)
        copies.setdefault(key, []).append(copy.bytes_per_second)
    return {**values, **{key: statistics.fmean(rates) for key, rates in copies.items()}}
