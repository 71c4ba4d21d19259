"""Who reads recordings, as options name it."""

from __future__ import annotations

from enum import Enum


class ReaderEngine(str, Enum):
    """Who reads recordings."""

    LOCAL = "local"
    """Processes of this machine."""
    RAY = "ray"
    """Tasks of a Ray cluster."""
