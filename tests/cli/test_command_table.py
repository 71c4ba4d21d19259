"""The table of commands says what the commands themselves say, and imports none of them."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from torchscale.cli.command_table import COMMANDS, Commands
from torchscale.cli.help import panel_of, summary_of
from torchscale.cli.main import app

NAMES = [name for commands in COMMANDS.values() for name in commands]


@pytest.mark.parametrize("name", NAMES)
def test_a_summary_is_the_first_paragraph_of_the_help(name: str) -> None:
    command = Commands()[name]
    titles = [title for title, commands in COMMANDS.items() if name in commands]
    assert titles == [panel_of(command)]
    assert COMMANDS[titles[0]][name] == summary_of(command.help)
    assert command.name == name


def test_the_program_has_the_commands_of_the_table_alone() -> None:
    program = typer.main.get_command(app)
    assert list(program.commands) == NAMES  # type: ignore[attr-defined]
    assert len(program.commands) == len(NAMES)  # type: ignore[attr-defined]
    assert program.commands.get("bogus") is None  # type: ignore[attr-defined]


IMPORTED = """
import sys
from torchscale.cli.main import app
try:
    app(sys.argv[1:])
except SystemExit:
    pass
print(*(name for name in sys.modules if name.startswith("torchscale.cli.")), file=sys.stderr)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "wanted"), [(["--help"], []), (["runs", "-h"], ["runs"])])
def test_only_the_command_that_is_asked_for_is_imported(
    arguments: list[str], wanted: list[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    imported = {name.split(".")[2] for name in done.stderr.split()}
    assert sorted(imported & set(NAMES)) == wanted
