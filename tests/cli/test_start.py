"""``torchscale`` alone: six questions with their commands, and what is here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import torchscale
from tests.read.test_runs import make_run
from torchscale.schema.state import State

QUESTIONS = {
    "My job is slow": "watch",
    "Is this node fit?": "validate",
    "How well does it scale?": "benchmark",
    "Did my change help?": "compare",
    "Which change made it slow?": "bisect",
    "It hangs": "autopsy",
}


def page(directory: Path, columns: int = 80) -> list[str]:
    """The lines of the first page."""
    done = torchscale(directory, columns=columns)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_every_question_has_its_command_and_the_page_fits_a_terminal(tmp_path: Path) -> None:
    lines = page(tmp_path)
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    for question, command in QUESTIONS.items():
        assert any(line.startswith(question) and f"torchscale {command}" in line for line in lines)
    assert any("none in ./results" in line for line in lines)
    assert not any(tmp_path.iterdir()), "it only looks"


def test_commands_name_what_is_here(tmp_path: Path) -> None:
    make_run(tmp_path / "results" / "old", (State.OK, State.OK), 1000.0)
    make_run(tmp_path / "results" / "my run", (State.OK,), 2000.0)
    (tmp_path / "notes.yaml").write_text("a: 1\n")
    (tmp_path / "mine.yaml").write_text("models: tiny-gpt2\nbatch_sizes: 8\n")
    told = "\n".join(page(tmp_path))
    assert "torchscale benchmark mine.yaml" in told
    assert "torchscale report 'results/my run'" in told
    assert "torchscale compare results/old 'results/my run'" in told
    assert "'results/my run', the newest of 2: partial" in told


def test_help_stays_the_list_of_commands(tmp_path: Path) -> None:
    told = torchscale(tmp_path, "--help").stdout
    assert told.startswith("Usage: ")
    assert "Decide:" in told


@pytest.mark.slow
def test_it_imports_nothing_that_makes_one_wait(tmp_path: Path) -> None:
    code = (
        "import sys; from torchscale.cli.main import app; app([], standalone_mode=False); "
        "print(sorted({'torch', 'pandas', 'plotly', 'scipy', 'rich', 'numpy'} & {*sys.modules}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "[]"
