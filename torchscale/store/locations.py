"""Where run folders go."""

from __future__ import annotations

from pathlib import Path

RESULTS = Path("results")
"""Where run folders go unless a directory is named."""


def default_directory(experiment_name: str) -> Path:
    """``results/<experiment_name>``."""
    return RESULTS / experiment_name
