"""The real program in a directory of its own, with the faulty models on its path."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cli.program import torchscale

MODELS = Path(__file__).parent / "models"
FAST = {
    "preset": "quick",
    "warmup_steps": 4,
    "warmup_seconds": 0.05,
    "warmup_max_seconds": 0.5,
    "min_steps": 10,
    "min_seconds": 0.1,
    "max_steps": 40,
    "max_seconds": 0.5,
}
"""A measurement of well under a second, for tests that are about what surrounds it."""
CATALOGUED = {"name": "tiny-decoder", "seq_len": 16}
"""A small model for tests whose model is not the point: one of the user would be built once more, in
a process of its own, before the sweep."""
RUN_SECONDS = 180


@dataclass(frozen=True)
class Program:
    """Runs torchscale in ``directory``."""

    directory: Path
    mark: str

    def run(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run to the end, in an environment with these variables."""
        return subprocess.run(
            self.argv(*arguments),
            cwd=self.directory,
            env={**self.env(), **variables},
            capture_output=True,
            text=True,
            timeout=RUN_SECONDS,
            check=False,
        )

    def here(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run to the end in this process, which has imported what a command needs; what the command
        starts are processes as ever, in the environment that :meth:`run` gives them."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {**self.env(), **variables}.items():
                patch.setenv(name, value)
            return torchscale(self.directory, *arguments, columns=120)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start and return at once."""
        return subprocess.Popen(
            self.argv(*arguments),
            cwd=self.directory,
            env=self.env(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def argv(self, *arguments: str) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", "torchscale", *arguments]

    def env(self) -> dict[str, str]:
        """This environment, the faulty models, and a mark that every descendant inherits."""
        path = os.pathsep.join([str(MODELS), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {
            **os.environ,
            "PYTHONPATH": path,
            "TORCHSCALE_TEST_MARK": self.mark,
            "COLUMNS": "120",
        }

    def config(self, name: str = "config.json", **content: Any) -> str:
        """Write a config (fast unless told otherwise) and return its name."""
        defaults: dict[str, Any] = {
            "experiment_name": "run",
            "batch_sizes": [8],
            "device": "cpu",
            "benchmark": FAST,
        }
        (self.directory / name).write_text(json.dumps({**defaults, **content}))
        return name

    def records(self, run: str = "results/run") -> dict[str, dict[str, Any]]:
        """Every complete record: ``<cell-id>/launch-K`` → content."""
        paths = sorted((self.directory / run / "cells").glob("*/launch-*/record.json"))
        return {
            f"{path.parent.parent.name}/{path.parent.name}": json.loads(path.read_text())
            for path in paths
        }

    def leftovers(self) -> list[psutil.Process]:
        """Living processes that descend from this program's runs."""
        found = []
        for process in psutil.process_iter():
            try:
                marked = process.environ().get("TORCHSCALE_TEST_MARK") == self.mark
                if marked and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except (psutil.Error, OSError):
                continue
        return found


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """The program in an empty directory."""
    return Program(tmp_path, tmp_path.name + str(os.getpid()))
