"""What is tested on other versions of torch, and what of it is told."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

script: Any = importlib.import_module("torches")
ROOT = Path(__file__).resolve().parents[2]


def test_what_is_run_exists() -> None:
    for path in script.TESTS:
        assert (ROOT / path).exists(), path


def test_no_version_is_that_of_the_other_tests() -> None:
    pins = (ROOT / "constraints.txt").read_text()
    assert not any(f"torch=={version}" in pins for version in script.VERSIONS)


def test_each_version_is_told_and_the_worst_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def environment(_: Path, directory: Path, needed: list[str], *__: object, **___: object) -> str:
        asked.append((directory.name, needed[0]))
        if directory.name == "9.0":
            raise subprocess.CalledProcessError(1, "pip", "", "no such version")
        return directory.name

    monkeypatch.setattr(script, "ENVIRONMENTS", tmp_path / "torches")
    monkeypatch.setattr(script, "environment", environment)
    monkeypatch.setattr(script, "run_tests", lambda inside, *_: (0, f"12 passed on {inside}"))
    monkeypatch.setattr(sys, "argv", ["torches.py", "8.0", "9.0", "newest"])

    assert script.main() == 1
    told = capsys.readouterr().out
    assert asked == [(name, f"torch=={name}") for name in ("8.0", "9.0", script.VERSIONS[-1])]
    assert "torch 8.0: passed" in told
    assert "12 passed on 8.0" in told
    assert "torch 9.0: FAILED" in told
    assert "no such version" in told


def test_without_names_all_versions_are_tested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(script, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(script, "tests_on", lambda version, _: (0, version))
    monkeypatch.setattr(sys, "argv", ["torches.py"])

    assert script.main() == 0
    told = capsys.readouterr().out
    assert [line.split(":")[0] for line in told.splitlines() if ":" in line] == [
        f"torch {version}" for version in script.VERSIONS
    ]
