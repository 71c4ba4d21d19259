"""Where run folders go, and what is kept between runs."""

from __future__ import annotations

import os
from pathlib import Path

RESULTS = Path("results")
"""Where run folders go unless a directory is named."""
WATCH_REPORT = "watch.json"
"""In the folder of a watched job: what ``watch`` saw of the program."""


def default_directory(experiment_name: str) -> Path:
    """``results/<experiment_name>``."""
    return RESULTS / experiment_name


def cache_directory() -> Path:
    """``$XDG_CACHE_HOME/torchscale``, by default below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "torchscale"
