"""How a watched job ended."""

from __future__ import annotations

import signal

from torchscale.schema.watch.failure import FailureCause, JobFailure
from torchscale.schema.watch.report import JobState

_IN_ORDER = {0, 128 + signal.SIGTERM, 128 + signal.SIGINT}
"""Exit codes of a job that has not failed: its own end, and the user's wish."""


def how_ended(
    exit_code: int | None, failure: JobFailure | None, *, is_stopped: bool
) -> tuple[JobState, JobFailure | None]:
    """The state of a job that is over, and why it failed or who ended it.

    Args:
        exit_code: ``None`` where the program is not ours.
        failure: What its processes left of their ends.
        is_stopped: Whether the user ended it.
    """
    interrupted = failure is not None and failure.cause is FailureCause.INTERRUPTED
    if exit_code in _IN_ORDER or interrupted:
        return JobState.DONE, failure if interrupted else None
    if failure is None and (exit_code is None or is_stopped):
        return JobState.DONE, None
    return JobState.FAILED, failure
