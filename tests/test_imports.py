"""What may be loaded when: promises that a stray import would break silently."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
HEAVY = {
    "torch",
    "transformers",
    "pandas",
    "plotly",
    "matplotlib",
    "scipy",
    "numpy",
    "weasyprint",
    "jinja2",
    "pydantic",
}


def loaded_by(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after ``code``."""
    program = f"import json, sys\n{code}\nprint(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_help_loads_nothing_heavy() -> None:
    code = """
import contextlib, io
from torchscale.cli.main import app
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    app(["--help"])
"""
    assert loaded_by(code) & HEAVY == set()


@pytest.mark.parametrize(
    "module",
    [
        "torchscale.analysis.summary.run",
        "torchscale.features.validate.health.node",
        "torchscale.measure.sweep",
        "torchscale.plan.expand",
        "torchscale.store.run_folder",
    ],
)
def test_everything_but_the_worker_does_without_torch(module: str) -> None:
    assert (
        loaded_by(f"import {module}")
        & {"torch", "transformers", "plotly", "matplotlib", "weasyprint"}
        == set()
    )


def test_the_worker_does_without_the_terminal_and_the_report() -> None:
    loaded = loaded_by(
        "import torchscale.worker.rank, torchscale.worker.probe.node, "
        "torchscale.worker.machine.collective_check"
    )
    assert loaded & {"typer", "plotly", "matplotlib", "jinja2", "weasyprint"} == set()


def test_help_as_a_user_runs_it_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "torchscale", "--help"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    assert "benchmark" in done.stdout
    loaded = {
        line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()
    }
    assert "typer" in loaded
    assert loaded & HEAVY == set()


def test_the_rooms_import_each_other_in_one_direction_alone() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [program, "--no-cache"], check=False, cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout
