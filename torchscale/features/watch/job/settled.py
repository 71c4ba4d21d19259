"""The steps of a watched job that its figures count."""

from __future__ import annotations

from torchscale.features.watch.analysis.step_log import StepLog

LEFT_OUT = 10
"""First steps that no figure counts: allocators, caches, and DistributedDataParallel, which puts
its buckets in order in the second one, settle in them."""
_SHORTEST_JOB = 4 * LEFT_OUT
"""Steps of a job from which on its first ones are left out; one with fewer has figures of all, if
there are more than the first ones."""


def settled(log: StepLog | None) -> StepLog | None:
    """Without the first steps; ``None`` where there are no others."""
    if log is None or log.steps <= LEFT_OUT:
        return None
    table = log.between(LEFT_OUT, log.steps) if log.steps >= _SHORTEST_JOB else None
    return log if table is None else log.without(table)
