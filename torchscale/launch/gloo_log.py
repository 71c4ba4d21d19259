"""What gloo says when it ends a rank."""

from __future__ import annotations

import re

_SIZE_ERROR = re.compile(
    r"preamble\.length <= op\.nbytes\. (?P<received>\d{1,18}) vs (?P<expected>\d{1,18})"
)


def size_error(text: str) -> tuple[int, int] | None:
    """Bytes received and bytes expected, from the message with which gloo ends a rank that receives
    more than it expects."""
    match = _SIZE_ERROR.search(text)
    if match is None:
        return None
    return int(match["received"]), int(match["expected"])
