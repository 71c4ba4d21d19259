"""Helpers of ours run our modules, whatever lies in the working directory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from torchscale.util.interpreter import module_command

PACKAGE = Path(__file__).parents[2] / "torchscale"


@pytest.mark.slow
def test_a_module_of_the_working_directory_is_not_run(tmp_path: Path) -> None:
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    for directory, text in ((here, "foreign"), (elsewhere, "ours")):
        directory.mkdir()
        (directory / "a_helper.py").write_text(f"import sys; print({text!r}, *sys.argv[1:])")

    def run(**variables: str) -> subprocess.CompletedProcess[str]:
        environment = {
            name: value for name, value in os.environ.items() if name != "PYTHONPATH"
        } | variables
        command = module_command("a_helper", "1", "2")
        return subprocess.run(
            command,
            cwd=here,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    alone, on_the_path = run(), run(PYTHONPATH=str(elsewhere))
    assert alone.returncode == 1
    assert "No module named" in alone.stderr
    assert on_the_path.stdout == "ours 1 2\n"


def test_every_helper_is_started_this_way() -> None:
    """But for ranks of a sweep: models may lie in the working directory."""
    starting = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "sys.executable" in path.read_text()
    ]
    assert starting == ["util/interpreter.py"]
