"""Which further interpreters are found, and what is installed for their tests."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


script: Any = importlib.import_module("pythons")


def program(path: Path, answer: str) -> Path:
    """A program that answers what an interpreter is asked."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{answer}\n")
    path.chmod(0o755)
    return path


@pytest.mark.slow
def test_interpreters_are_those_that_run(tmp_path: Path) -> None:
    pyenv, directory = tmp_path / "pyenv", tmp_path / "bin"
    oldest = program(pyenv / "versions" / "3.10.13" / "bin" / "python3", "echo 10")
    newest = program(directory / "python3.14", "echo 14")
    program(directory / "python3.12", "exit 127")  # a shim of a version that is not chosen
    program(directory / "python3.13", "echo 12")
    found = script.interpreters([10, 11, 12, 13, 14], str(directory), pyenv)
    assert found == {10: oldest, 14: newest}
    assert script.interpreters([11], str(directory), tmp_path / "none") == {}


def test_the_oldest_and_the_newest_are_tested() -> None:
    assert script.ends([12, 10, 13]) == [10, 13]
    assert script.ends([12]) == [12]
    assert script.ends([]) == []


def test_no_torch_is_installed() -> None:
    tables = {
        "dependencies": ["numpy>=1.26"],
        "optional-dependencies": {"dev": ["pytest>=8.3", "ruff>=0.9"]},
    }
    assert script.requirements(tables) == [
        "numpy>=1.26",
        "pytest>=8.3",
        "tomli; python_version < '3.11'",
    ]


@pytest.mark.slow
def test_where_there_is_no_further_python_all_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["pythons.py"])
    assert script.main() == 0
    assert "no further Python among 3." in capsys.readouterr().out


def test_what_is_run_and_left_out_exists() -> None:
    for path in (
        *script.TESTS,
        *(option.partition("=")[2].partition("::")[0] for option in script.LEFT_OUT),
    ):
        assert list(ROOT.glob(path)) or list(ROOT.glob(f"**/{path}")), path


@pytest.mark.parametrize(
    ("output", "code", "shown"),
    [
        ("E  why\n12 passed", 0, "12 passed"),
        ("E  why\nFLAKY tests/a.py::test_b", 0, "E  why\nFLAKY tests/a.py::test_b"),
        ("E  why\n1 failed", 1, "E  why\n1 failed"),
    ],
)
def test_why_a_test_failed_is_shown_be_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, output: str, code: int, shown: str
) -> None:
    environments = importlib.import_module("environments")
    done = subprocess.CompletedProcess([], code, output, "")
    monkeypatch.setattr(environments, "run", lambda *_, **__: done)
    log = tmp_path / "log"
    assert environments.run_tests(Path("python"), (), log, 1.0) == (code, shown)
    assert log.read_text() == output
