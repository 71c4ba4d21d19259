"""Versions of programs, as they name themselves."""

from __future__ import annotations

import re


def version_numbers(version: str) -> tuple[int, ...]:
    """``2.13.0+cpu`` → ``(2, 13, 0)``; empty for what begins with no number."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    return () if match is None else tuple(map(int, match[0].split(".")))
