"""Where run folders go."""

from __future__ import annotations

from pathlib import Path

RESULTS = Path("results")
"""Where run folders go unless a directory is named."""
WATCH_REPORT = "watch.json"
"""In the folder of a watched job: what ``watch`` saw of the program."""


def default_directory(experiment_name: str) -> Path:
    """``results/<experiment_name>``."""
    return RESULTS / experiment_name
