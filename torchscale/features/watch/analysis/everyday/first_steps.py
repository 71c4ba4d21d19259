"""First steps that take much longer than the later ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchscale.analysis.diagnosis.shared import EXPLAINED_SHARE
from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.features.watch.analysis.everyday.lines import work_in
from torchscale.features.watch.analysis.evidence import ShownByRank
from torchscale.features.watch.analysis.step_log import StepLog
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_percent, format_seconds

_LEAST_SECONDS = 10.0
_LEAST_SHARE = 0.05
"""Of the job so far, and at least so long: allocators, kernels and caches are made in every job's
first steps, in seconds."""
_LEAST_OF_ONE = 2.0
"""Seconds where one rank takes them: the others make the same."""
_MOST_OF_OTHERS = 0.6
"""Of what that rank takes: in the second step DistributedDataParallel waits in its forward pass, as
it makes its buckets anew, and no call tells."""


def find_slow_first_steps(
    log: StepLog, evidence: tuple[ShownByRank, ...], first: int
) -> Finding | None:
    """What the first steps take beyond the later ones; it comes once, and has no share of a step.

    Args:
        log: All steps of the job.
        evidence: Of each row.
        first: Steps that count as the first ones.
    """
    table = log.table
    if table is None or log.per_column > 1 or len(table) < 4 * first:
        return None
    wall = table.wall.mean(axis=0)
    usual = float(np.median(wall[first:]))
    extra = float(wall[:first].sum()) - first * usual
    total = float(wall.sum())
    row = _late_row(table, first)
    least = _LEAST_SECONDS if row is None else _LEAST_OF_ONE
    if extra < max(least, _LEAST_SHARE * total):
        return None
    most = int(wall[:first].argmax())
    evidence_lines = [
        f"the longest is step {table.first + most}: {format_seconds(float(wall[most]))}, later "
        f"ones {format_seconds(usual)}"
    ]
    compiled = _compiled(evidence, range(table.first, table.first + first))
    advice = "look at what the first steps make that could be made before or be kept: loader "
    advice += "workers, kernels that are tried out (cudnn.benchmark), caches on a disk"
    if compiled:
        evidence_lines.append(f"torch.compile took {format_seconds(compiled)} of them")
    if compiled > EXPLAINED_SHARE * extra:
        advice = "keep what torch.compile makes: TORCHINDUCTOR_CACHE_DIR on a disk that stays"
    who = f"the first {first} steps"
    if row is not None:
        who = f"the others wait for rank {log.ranks[row]} in {who}: they"
    if row is not None and (place := _place(log, evidence, row, first)):
        advice = f"look at {place} first, which the other ranks do not do"
    return Finding(
        kind=FindingKind.SLOW_START,
        rank=None if row is None else log.ranks[row],
        cost_percent=0.0,
        cost_seconds=0.0,
        confidence=Confidence.HIGH,
        summary=f"{who} take {format_seconds(extra)} longer than later ones, "
        f"{format_percent(extra / total)} of the steps so far",
        evidence=tuple(evidence_lines),
        advice=advice,
    )


def _late_row(table: JobSteps, first: int) -> int | None:
    """The row that takes most of the time by itself; ``None`` where several do."""
    busy = table.busy
    extra = busy[:, :first].sum(axis=1) - first * np.median(busy[:, first:], axis=1)
    row = int(extra.argmax())
    others = np.delete(extra, row)
    if not len(others) or float(others.max()) > _MOST_OF_OTHERS * extra[row]:
        return None
    return row


def _place(log: StepLog, evidence: Sequence[ShownByRank], row: int, first: int) -> str:
    """Where the rank is in the first steps; empty where no line explains them."""
    table = log.table
    if table is None or row >= len(evidence):
        return ""
    slow = np.arange(table.first + len(table)) < table.first + first
    seconds = np.concatenate([np.zeros(table.first), table.wall[row]])
    work = work_in(evidence[row], slow, ~slow, seconds)
    return "" if work is None else work.place


def _compiled(evidence: tuple[ShownByRank, ...], steps: range) -> float:
    """How long the rank compiled that did so longest."""
    times = [
        sum(one.seconds for one in rank.compilations if one.step in steps) for rank in evidence
    ]
    return max(times, default=0.0)
