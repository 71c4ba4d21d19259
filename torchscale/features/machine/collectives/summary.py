"""Summaries of collectives cells."""

from __future__ import annotations

from functools import partial

from torchscale.analysis.machine.collectives import (
    collective_figures,
    rank_zero,
    sweep_flags,
    with_link_shares,
)
from torchscale.analysis.machine.link_ceiling import LinkTopology
from torchscale.analysis.machine.link_verdict import judge_link
from torchscale.analysis.summary.facts import LaunchConditions, cell_facts
from torchscale.analysis.summary.machine import CollectivesSummary
from torchscale.analysis.summary.outcome import cell_outcome, completed_launches
from torchscale.analysis.training.flags import Flag, gpus_are_shared
from torchscale.config.choices import Metric
from torchscale.schema.cells.collectives import (
    CollectivesCell,
    CollectivesRank,
    CollectivesResult,
    NcclLog,
)
from torchscale.schema.cells.kinds import as_kind
from torchscale.schema.exports.machine import Curve
from torchscale.schema.launch.record import LaunchRecord, payload
from torchscale.schema.run.content import CellRun, Run
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.state import State


def summarize(
    cell_run: CellRun, cell: CollectivesCell, repeats: int | None, run: Run | None
) -> CollectivesSummary:
    """Curves and a verdict on the link. The launch that logs NCCL's choices, and what the config
    declares of the link, are looked for in ``run``; without it there is no verdict."""
    results = [payload(record, CollectivesResult) for record in completed_launches(cell_run)]
    state, reason = cell_outcome(cell_run, None)
    facts = cell_facts(cell_run, state, partial(_launch_values, cell), partial(_conditions, cell))
    rank = rank_zero(results)
    if state is not State.OK or rank is None:
        return CollectivesSummary(cell, state, reason, len(results), facts=facts)
    figures, log = collective_figures(cell, results), results[0].nccl_log
    verdict = (
        None if run is None else judge_link(cell, figures, _machine(run, cell, results[0], rank))
    )
    if verdict is not None and verdict.ceiling is not None:
        figures = with_link_shares(figures, verdict.ceiling.bytes_per_second)
    of_launches = {Flag(name) for launch in facts.launches for name in launch.flags or ()}
    flags = tuple(sorted({*sweep_flags(figures.curves), *of_launches}))
    return CollectivesSummary(
        cell, state, reason, len(results), figures, verdict, log, rank, facts, flags
    )


def without_figures(cell_run: CellRun, cell: CollectivesCell, reason: str) -> CollectivesSummary:
    """The state and reason of a sweep whose records are not usable."""
    return CollectivesSummary(cell, State.INVALID, reason, len(cell_run.launches))


def flag_names(summary: CollectivesSummary) -> tuple[str, ...]:
    """Names of the flags of a sweep's bandwidths."""
    return tuple(flag.value for flag in summary.flags)


def _conditions(cell: CollectivesCell, record: LaunchRecord) -> LaunchConditions:
    """Flags of what :func:`_launch_values` gives."""
    if cell.logs_choices:
        return LaunchConditions()
    result = payload(record, CollectivesResult)
    curves = collective_figures(cell, [result]).curves
    flags = set(sweep_flags(curves))
    if gpus_are_shared(record.machine_telemetry, result.ranks):
        flags.add(Flag.CONTENDED)
    sizes = {_key(curve): curve.peak.payload_bytes for curve in curves}
    return LaunchConditions(tuple(flag.value for flag in sorted(flags)), message_bytes=sizes)


def _launch_values(cell: CollectivesCell, record: LaunchRecord) -> dict[MetricKey, float | None]:
    """Peak bus bandwidth of each operation and dtype; none of a cell that only logs NCCL's
    choices."""
    if cell.logs_choices:
        return {}
    curves = collective_figures(cell, [payload(record, CollectivesResult)]).curves
    return {_key(curve): curve.peak.busbw for curve in curves}


def _key(curve: Curve) -> MetricKey:
    return MetricKey(metric=Metric.BUSBW, operation=curve.operation, dtype=curve.dtype)


def _machine(
    run: Run, cell: CollectivesCell, result: CollectivesResult, rank: CollectivesRank
) -> LinkTopology:
    """What is known of the machines of a sweep's first launch."""
    experiment = run.experiment
    choices, variables = _logged_choices(run, cell), experiment.environment.env
    uuids = frozenset(other.device.uuid for other in result.ranks if other.device.uuid is not None)
    nodes = len({other.hostname for other in result.ranks})
    return LinkTopology(
        experiment.config.hardware, rank, result.nccl_log, choices, variables, uuids, nodes
    )


def _logged_choices(run: Run, cell: CollectivesCell) -> NcclLog | None:
    """What NCCL logged of its choices in the cell that does nothing else."""
    wanted = (cell.world_size, cell.algorithm, cell.protocol)
    for other in run.cells:
        candidate = as_kind(other.planned.cell, CollectivesCell)
        if candidate is None or not candidate.logs_choices or not other.launches:
            continue
        if (candidate.world_size, candidate.algorithm, candidate.protocol) == wanted:
            return payload(other.launches[0], CollectivesResult).nccl_log
    return None
