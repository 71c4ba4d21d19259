"""A run as a history keeps it."""

from __future__ import annotations

import hashlib
import math
import statistics

from torchscale.analysis.stats.estimate import Estimate
from torchscale.features.compare.analysis.differences import result_facts
from torchscale.features.compare.analysis.disturbances import flagged_conditions
from torchscale.features.compare.history.records import (
    HistoryCell,
    HistoryEntry,
    HistoryFigure,
    HistoryOutcome,
    HistoryRun,
)
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import ResultCell, ResultSet


def history_entry(results: ResultSet) -> HistoryEntry:
    """A run's figures, and everything that can explain them."""
    environment, config = results.environment, results.config
    host, experiment, config_hash = "", "", ""
    command: tuple[str, ...] = ()
    versions = None
    if environment is not None:
        host, command, versions = environment.hostname, environment.command, environment.versions
    if config is not None:
        experiment = config.experiment_name
        config_hash = _hash(config.model_dump_json())[:16]
    run = HistoryRun(
        identity=_hash(results.created_at, host, experiment, *command),
        name=results.name,
        measured_at=results.created_at,
        host=host,
        driver=(versions and versions.driver) or "",
        torch=(versions and versions.torch) or "",
        nccl=(versions and versions.nccl) or "",
        torchscale=results.tool_version,
        git_branch=(environment and environment.git_branch) or "",
        git_commit=(environment and environment.git_commit) or "",
        config_hash=config_hash,
    )
    # A folder may be renamed, and read where another file of it is damaged: what was measured is
    # the same.
    digest = _hash(results.model_copy(update={"name": "", "problems": ()}).model_dump_json())
    cells = tuple(_cell(cell) for cell in results.cells)
    return HistoryEntry(
        run=run, digest=digest, facts=result_facts(results), cells=cells, results=results
    )


def _cell(cell: ResultCell) -> HistoryCell:
    outcome = HistoryOutcome(
        state=cell.state,
        reason=cell.reason,
        device=cell.device,
        flags=cell.flags,
        conditions=flagged_conditions(cell),
        measured_at=min(
            (launch.started_at for launch in cell.launches if launch.started_at), default=""
        ),
    )
    keys = dict.fromkeys(key for launch in cell.launches for key in launch.values)
    return HistoryCell(
        cell=cell.cell, outcome=outcome, figures=tuple(_figure(cell, key) for key in keys)
    )


def _figure(cell: ResultCell, key: MetricKey) -> HistoryFigure:
    values = [launch.values[key] for launch in cell.launches if key in launch.values]
    level, variance = Estimate.of_log_mean(values), None
    if level.count > 1:
        variance = statistics.variance(math.log(value) for value in values)
    return HistoryFigure(
        metric=key,
        level=level.value,
        low=level.low,
        high=level.high,
        log_variance=variance,
        launches=level.count,
    )


def _hash(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
