"""First steps that take much longer than the later ones."""

from __future__ import annotations

import numpy as np

from torchscale.analysis.diagnosis.shared import EXPLAINED_SHARE
from torchscale.features.watch.analysis.evidence import ShownByRank
from torchscale.features.watch.analysis.step_log import StepLog
from torchscale.schema.profiles.finding import Confidence, Finding, FindingKind
from torchscale.util.units import format_percent, format_seconds

_LEAST_SECONDS = 10.0
_LEAST_SHARE = 0.05
"""Of the job so far, and at least so long: allocators, kernels and caches are made in every job's
first steps, in seconds."""


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
    if extra < max(_LEAST_SECONDS, _LEAST_SHARE * total):
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
    return Finding(
        kind=FindingKind.SLOW_START,
        cost_percent=0.0,
        cost_seconds=0.0,
        confidence=Confidence.HIGH,
        summary=f"the first {first} steps take {format_seconds(extra)} longer than later ones, "
        f"{format_percent(extra / total)} of the steps so far",
        evidence=tuple(evidence_lines),
        advice=advice,
    )


def _compiled(evidence: tuple[ShownByRank, ...], steps: range) -> float:
    """How long the rank compiled that did so longest."""
    times = [
        sum(one.seconds for one in rank.compilations if one.step in steps) for rank in evidence
    ]
    return max(times, default=0.0)
