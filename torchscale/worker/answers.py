"""Answers of a worker process to the command that started it, apart from what user code in it
prints."""

from __future__ import annotations

import os
import sys
from typing import IO


def open_answers() -> IO[str]:
    """The standard output of this process, for its answers alone: what is printed from now on goes
    to its errors."""
    sys.stdout.flush()
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)  # a line is out at once
    os.dup2(2, 1)
    return answers
