"""Summaries of memory cells."""

from __future__ import annotations

from torchscale.analysis.summary.facts import cell_facts
from torchscale.analysis.summary.machine import MemorySummary
from torchscale.analysis.summary.outcome import cell_outcome, completed_launches
from torchscale.config.choices import Metric
from torchscale.schema.cells.memory import MemoryCell, MemoryResult
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.state import State


def summarize(
    cell_run: CellRun, cell: MemoryCell, repeats: int | None, run: Run | None
) -> MemorySummary:
    """The first launch's ranks where every launch is ``ok``."""
    launches = completed_launches(cell_run)
    state, reason = cell_outcome(cell_run, None)
    ranks = payload(launches[0], MemoryResult).ranks if state is State.OK else ()
    return MemorySummary(
        cell, state, reason, len(launches), ranks, cell_facts(cell_run, state, _launch_values)
    )


def without_figures(cell_run: CellRun, cell: MemoryCell, reason: str) -> MemorySummary:
    """The state and reason of a cell whose records are not usable."""
    return MemorySummary(cell, State.INVALID, reason, len(cell_run.launches))


def flag_names(summary: MemorySummary) -> tuple[str, ...]:
    """Memory cells have no flags."""
    return ()


def _launch_values(record: LaunchRecord) -> dict[MetricKey, float | None]:
    """Peak of the fullest rank."""
    peaks = [rank.peak_bytes for rank in payload(record, MemoryResult).ranks]
    return {MetricKey(metric=Metric.MEMORY): max(peaks, default=None)}
