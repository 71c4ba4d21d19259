"""Names of other tools answer with the line to type, and that line is understood."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import typer.main

from tests.cli.program import torchscale
from torchscale.cli import other_tools as earlier
from torchscale.cli.command_table import COMMANDS
from torchscale.cli.main import app
from torchscale.cli.other_tools import refuse_foreign_command, refuse_foreign_options
from torchscale.errors import UsageError

LINES = [
    ("gen-config -o 'a b.yaml'", "init -o 'a b.yaml'"),
    ("gen-config --hardware m4-metal", "init --hardware apple-mps"),
    ("run --model gpt2", "benchmark --model gpt2"),
    (
        "suite a.yaml --output out --no-amp --single",
        "benchmark a.yaml --output out --precision fp32 --gpus 1",
    ),
    ("suite", "benchmark"),
    ("serve results/demo", "report serve results/demo"),
    ("benchmark a.yaml --full", "benchmark a.yaml --benchmark.preset=standard"),
    ("benchmark --model gpt2 --no-amp", "benchmark --model gpt2 --precision fp32"),
    ("tune a.yaml --single", "tune a.yaml --gpus 1"),
    ("profile --single --no-amp", "profile --gpus 1 --precision fp32"),
    ("measure memory --no-amp", "measure memory --precision fp32"),
    ("validate --full", "validate --burn-in 10m"),
]


@pytest.mark.parametrize(("typed", "line"), LINES)
def test_the_whole_line_is_answered(tmp_path: Path, typed: str, line: str) -> None:
    done = torchscale(tmp_path, *shlex.split(typed))
    assert (done.returncode, done.stdout) == (2, "")
    error, hint = done.stderr.splitlines()
    assert error.startswith("error: there is no ")
    assert hint.endswith(f"type: torchscale {line}")


@pytest.mark.parametrize("line", sorted({line for _, line in LINES}))
def test_a_line_that_is_answered_is_none_that_is_refused(line: str) -> None:
    """Its command exists, and no word of it is answered with another line."""
    arguments = shlex.split(line)
    refuse_foreign_command(arguments, list(known_commands()))
    refuse_foreign_options(arguments[0], arguments[1:])


def test_no_such_name_is_that_of_a_command_or_option() -> None:
    root = typer.main.get_command(app)
    assert not set(known_commands()) & set(earlier._COMMANDS)
    for name, replaced in earlier._OPTIONS.items():
        command = root
        for word in name.split():
            command = command.commands[word]  # type: ignore[attr-defined]
        own = {option for parameter in command.params for option in parameter.opts}
        assert not own & set(replaced), name


def test_what_follows_two_dashes_is_the_users_own(tmp_path: Path) -> None:
    refuse_foreign_options("profile", ["--", "train.py", "--single"])
    with pytest.raises(UsageError) as caught:
        refuse_foreign_options("profile", ["--single", "--", "train.py", "--single"])
    assert caught.value.hint == "type: torchscale profile --gpus 1 -- train.py --single"


def known_commands() -> list[str]:
    return [name for commands in COMMANDS.values() for name in commands]
