"""Where run folders go."""

from __future__ import annotations

from pathlib import Path

from torchscale.config.experiment import Experiment

RESULTS = Path("results")
"""Where run folders go unless a directory is named."""


def default_directory(experiment: Experiment) -> Path:
    """``results/<experiment_name>``."""
    return RESULTS / experiment.experiment_name
