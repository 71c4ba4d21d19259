"""All everyday causes of a job."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from torchscale.features.watch.analysis.everyday.cause import EverydayCause
from torchscale.features.watch.analysis.everyday.checkpoints import find_checkpoints
from torchscale.features.watch.analysis.everyday.evaluations import find_evaluations
from torchscale.features.watch.analysis.everyday.folding import fold
from torchscale.features.watch.analysis.everyday.garbage import find_collections
from torchscale.features.watch.analysis.everyday.loading import find_stalls
from torchscale.features.watch.analysis.everyday.memory import MemoryLimits, find_memory_growth
from torchscale.features.watch.analysis.everyday.pauses import find_pauses
from torchscale.features.watch.analysis.everyday.recompilation import find_recompilations
from torchscale.features.watch.analysis.everyday.watched import WatchedSteps
from torchscale.features.watch.analysis.evidence import ShownByRank
from torchscale.features.watch.analysis.step_log import StepLog
from torchscale.schema.profiles.finding import Finding


def everyday_causes(
    log: StepLog,
    evidence: Sequence[ShownByRank] = (),
    findings: Sequence[Finding] = (),
    *,
    on_device: bool = False,
    limits: MemoryLimits | None = None,
) -> tuple[list[EverydayCause], list[Finding]]:
    """Everyday causes, the costliest first, and which of the rules' findings they do not explain.

    Args:
        log: All steps, without those of the warm-up.
        evidence: Of each row; empty without.
        findings: Of the rules, on the whole job.
        on_device: Whether the work runs on a device beside the host.
        limits: Memory that there is.
    """
    table = log.table
    if table is None:
        return [], list(findings)
    watched = WatchedSteps(log, table, tuple(evidence), on_device)
    causes = [
        *find_recompilations(watched),
        *find_checkpoints(watched),
        *find_evaluations(watched),
        *find_collections(watched),
        *find_stalls(watched),
    ]
    known = np.zeros(len(table))
    for cause in causes:
        known = np.maximum(known, cause.by_column)
    causes += find_pauses(watched, known)
    left, kept = fold(causes, findings, watched)
    left += find_memory_growth(watched, limits)
    left.sort(key=lambda cause: -cause.finding.cost_percent)
    return left, kept
