"""Why a watched job failed, in the form of a launch's record."""

from __future__ import annotations

from torchscale.schema.launch.failure import FailureKind, RankFailure
from torchscale.schema.watch.failure import FailureCause, JobFailure

_OUT_OF_MEMORY = (FailureCause.OUT_OF_MEMORY, FailureCause.OOM_KILL)


def rank_failure(failure: JobFailure, now: float) -> RankFailure:
    """The end that came first, as ranks of a launch report theirs.

    Args:
        failure: Of the job.
        now: Seconds since the epoch.
    """
    kind = FailureKind.OOM if failure.cause in _OUT_OF_MEMORY else FailureKind.ERROR
    name = failure.error or failure.signal or failure.cause.value.replace("_", " ")
    return RankFailure(
        rank=failure.rank or 0,
        kind=kind,
        type=name,
        message=failure.message or failure.summary,
        traceback=failure.place,
        time=now,
    )
