"""Help texts wrap to the terminal's width alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
import typer
from typer.testing import CliRunner

from torchscale.cli.command import finish_commands
from torchscale.cli.main import app


def test_a_paragraph_becomes_one_line_and_code_keeps_its_lines() -> None:
    program = typer.Typer()

    @program.command("first")
    def first() -> None:
        """Do one
        thing.

        And another
        one:

            with code:
                pass
        """

    @program.command("second")
    def second() -> None: ...

    finish_commands(program)
    assert program.registered_commands[0].help == "Do one thing.\n\nAnd another one:\n\n    with code:\n        pass"
    assert program.registered_commands[1].help is None


def test_a_group_keeps_the_help_it_was_given() -> None:
    program = typer.Typer(help="Given.")

    @program.callback()
    def options() -> None:
        """Not shown."""

    finish_commands(program)
    assert program.registered_callback is not None
    assert program.registered_callback.help != "Not shown."


def commands(command: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


@pytest.mark.parametrize("path", list(commands(typer.main.get_command(app))), ids=" ".join)
def test_no_line_of_any_help_is_broken_before_the_terminals_edge(path: tuple[str, ...]) -> None:
    """In a paragraph of prose, the next line's first word would not have fitted."""
    width = 80
    shown = CliRunner().invoke(app, [*path, "--help"], env={"COLUMNS": str(width), "TERM": "dumb", "NO_COLOR": "1"})
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    for line, following in itertools.pairwise(lines):
        prose = line.startswith(" ") and following.startswith(" ") and line.strip() and following.strip()
        if prose and not line.startswith("  ") and not following.startswith("  "):
            first_word = following.split()[0]
            assert len(line.rstrip()) + 1 + len(first_word) > width - 2, (line, following)
