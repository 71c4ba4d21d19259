"""The steps of a watched job that its figures count."""

from __future__ import annotations

from torchscale.analysis.exchanges.steps import JobSteps
from torchscale.features.watch.analysis.step_log import StepLog
from torchscale.features.watch.job.attempts import Attempt

LEFT_OUT = 10
"""First steps that no figure counts: allocators, caches, and DistributedDataParallel, which puts
its buckets in order in the second one, settle in them."""
_SHORTEST_JOB = 4 * LEFT_OUT
"""Steps of a job from which on its first ones are left out."""


def settled(log: StepLog | None) -> StepLog | None:
    """Without the first steps of a job that has enough."""
    if log is None or log.steps < _SHORTEST_JOB:
        return log
    table = log.between(LEFT_OUT, log.steps)
    if table is None:
        return log
    return log.without(table)


def settled_table(attempt: Attempt) -> JobSteps | None:
    """These steps of an attempt; ``None`` where there are none."""
    log = settled(attempt.log)
    return None if log is None else log.table
