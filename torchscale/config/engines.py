"""What carries launches over several nodes."""

from __future__ import annotations

from enum import Enum


class EngineChoice(str, Enum):
    """Options of ``--engine``."""

    CHANNEL = "channel"
    """A command on every node, joined by a token: bare machines, pods."""
    SLURM = "slurm"
    """Steps of the job at hand."""
    RAY = "ray"
    """Actors of a cluster."""
