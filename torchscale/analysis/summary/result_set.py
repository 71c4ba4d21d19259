"""A run, or one cell, as a side of a comparison."""

from __future__ import annotations

from torchscale.analysis.kinds import AnySummary, analysis_kind
from torchscale.analysis.summary.run import RunSummary, summarize_any
from torchscale.schema.run.content import CellRun
from torchscale.schema.run.result_set import ResultCell, ResultSet


def result_set(summary: RunSummary, name: str) -> ResultSet:
    """A whole run as one side of a comparison."""
    experiment = summary.experiment
    first, *later = (one.session for one in summary.sessions)
    return ResultSet(
        name=name,
        tool_version=first.tool_version,
        created_at=first.started_at,
        environment=first.environment,
        config=experiment.config,
        threads_per_rank=experiment.threads_per_rank,
        later=tuple(later),
        cells=tuple(map(_result_cell, summary.in_plan_order)),
        problems=summary.problems,
    )


def single_result(cell_run: CellRun, name: str) -> ResultSet:
    """One cell on its own."""
    summary = summarize_any(cell_run)
    facts = summary.facts
    version = ", ".join(facts.torchscale)
    return ResultSet(
        name=name, tool_version=version, created_at=facts.started_at, cells=(_result_cell(summary),)
    )


def _result_cell(summary: AnySummary) -> ResultCell:
    return ResultCell(
        cell=summary.cell,
        state=summary.state,
        reason=summary.reason,
        flags=analysis_kind(summary.cell.kind).flag_names(summary),
        device=", ".join(summary.facts.devices),
        torch=", ".join(summary.facts.torch),
        transport=summary.facts.transport,
        nodes=summary.facts.node_count if summary.facts.launches else None,
        backend=", ".join(summary.facts.backends) or None,
        launches=summary.facts.launches,
    )
