"""What errors of a rank say, by which their kinds are told apart. All in lower case: texts are
lowered before they are compared."""

from __future__ import annotations

OUT_OF_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "out of memory",
    "_status_alloc_failed",
)
PEER_LOST = (
    "connection closed by peer",
    "connection closed by remote peer",
    "connection reset by peer",
    "connection was likely closed",
    "connection refused",
    "broken pipe",
    "socket timeout",
    "remote process exited",
    "ncclremoteerror",
    "nccl communicator was aborted",
)
"""A collective failed because another rank had gone."""
TIMED_OUT = ("timed out", "timeout")
"""Nobody came, or answered, in time."""


def says_any(text: str, signs: tuple[str, ...]) -> bool:
    """Whether a text has one of the signs."""
    lowered = text.lower()
    return any(sign in lowered for sign in signs)
