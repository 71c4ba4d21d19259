"""What a rank reported before it died."""

from __future__ import annotations

from enum import Enum

from torchscale.schema.base import (
    SCHEMA_VERSION,
    Count,
    EpochSeconds,
    Frozen,
)


class FailureKind(str, Enum):
    """What a rank died of."""

    OOM = "oom"
    """It ran out of memory."""
    PEER_LOST = "peer_lost"
    """A collective failed because another rank had gone: a symptom, not the cause."""
    LEFT_EARLY = "left_early"
    """Something called ``sys.exit`` before the measurement was done."""
    ERROR = "error"
    """Anything else that was raised."""


class RankFailure(Frozen):
    """What a rank said before it died: ``error-rank-R.json``.

    Attributes:
        rank: Who.
        kind: What it was.
        type: The exception's class.
        message: Text of the error.
        traceback: The last lines of it.
        time: Seconds since the epoch: the earliest failure is the cause.
    """

    schema_version: Count = SCHEMA_VERSION
    rank: Count
    kind: FailureKind
    type: str
    message: str
    traceback: str = ""
    time: EpochSeconds
