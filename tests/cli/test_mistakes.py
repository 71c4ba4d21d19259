"""Mistakes that click finds are told as all others: a line with the value, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.program import torchscale


@pytest.mark.parametrize(
    ("typed", "error", "hint"),
    [
        ("export --to parket", "--to parket: expected one of junit, ", "export -h"),
        ("export --to=github", "did you mean 'github-summary'?", "export -h"),
        ("report --cost cheap", "--cost cheap: ", "report -h"),
        ("report serve --port=99999999", "--port 99999999: ", "report serve -h"),
        ("report --fromat html", "no such option: --fromat; did you mean '--format'?", "report -h"),
        ("autopsy train", "PID: ", "autopsy -h"),
        ("compare", "A B [C ...] is missing", "compare -h"),
        ("validate extra", "unexpected argument: extra", "validate -h"),
        ("comp", "no such command 'comp'; did you mean 'compare'?", "-h"),
        (
            "measure colectives",
            "no such command 'colectives'; did you mean 'collectives'?",
            "measure -h",
        ),
        ("--nope", "no such option: --nope", "-h"),
        ("watch --stall", "--stall", "watch -h"),
    ],
)
def test_a_mistake_is_told_in_our_form(tmp_path: Path, typed: str, error: str, hint: str) -> None:
    done = torchscale(tmp_path, *typed.split())
    first, *rest = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "")
    assert first.startswith("error: ")
    assert error in first
    assert rest in ([], [f"hint: torchscale {hint}"])


def test_a_secret_in_a_mistake_is_hidden(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "report", "--cost", "https://bob:s3cr3t-word@host")
    assert "s3cr3t-word" not in done.stderr
    assert "https://bob" in done.stderr or "redacted" in done.stderr


@pytest.mark.parametrize(
    ("command", "usage"),
    [
        ("history", "history [OPTIONS] [DIR ...]"),
        ("compare", "compare [OPTIONS] A B [C ...]"),
        ("autopsy", "autopsy [OPTIONS] [PID]"),
        ("profile analyze", "profile analyze [OPTIONS] PATH…"),
        ("profile strip", "profile strip [OPTIONS] FILE.sqlite"),
    ],
)
def test_usage_has_each_bracket_once(tmp_path: Path, command: str, usage: str) -> None:
    done = torchscale(tmp_path, *command.split(), "--help")
    assert done.stdout.splitlines()[0].endswith(f" {usage}")
