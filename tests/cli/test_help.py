"""Help texts wrap to the terminal's width alone."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from torchscale.cli.command_table import COMMANDS
from torchscale.cli.main import app
from torchscale.cli.shared_options import finish_commands


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
    assert (
        program.registered_commands[0].help
        == "Do one thing.\n\nAnd another one:\n\n    with code:\n        pass"
    )
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
    shown = CliRunner().invoke(
        app, [*path, "--help"], env={"COLUMNS": str(width), "TERM": "dumb", "NO_COLOR": "1"}
    )
    assert shown.exit_code == 0, shown.output
    lines = shown.output.splitlines()
    checked = 0
    for line, following in itertools.pairwise(lines):
        if line and following and not line.startswith(" ") and not following.startswith(" "):
            checked += 1
            assert len(line) <= width
            assert len(line) + 1 + len(following.split()[0]) > width, (line, following)
    assert checked or len(shown.output) < 4000, (
        "a long help has at least one paragraph of two lines"
    )


def test_examples_follow_each_other_and_only_names_and_titles_are_coloured() -> None:
    program = typer.Typer(rich_markup_mode=None)

    @program.command()
    def first(count: Annotated[int, typer.Option(min=1, help="How many.")] = 2) -> None:
        """Do one [bold]thing[/bold].

        [bold]Examples[/bold]

        [cyan]first --count 1[/cyan]

        [cyan]first --count 2[/cyan]
        """

    finish_commands(program)
    environment = {"COLUMNS": "80", "TERM": "xterm", "NO_COLOR": ""}
    shown = CliRunner().invoke(program, ["--help"], env=environment, color=True).output
    plain = (
        CliRunner()
        .invoke(program, ["--help"], env={**environment, "NO_COLOR": "1"}, color=True)
        .output
    )
    assert "\x1b" not in plain
    assert re.sub(r"\x1b\[\d+m", "", shown) == plain
    assert (
        "\x1b[1mExamples:\x1b[0m\n  \x1b[36mfirst --count 1\x1b[0m\n  \x1b[36mfirst --count 2"
        in shown
    )
    assert (
        "Do one thing.\n\nExamples:\n  first --count 1\n  first --count 2\n\nOptions:\n  --count N "
        in plain
    )
    assert "How many.  [default: 2; x>=1]" in plain


def test_commands_stand_in_groups_in_the_order_of_use() -> None:
    shown = (
        CliRunner()
        .invoke(app, ["--help"], env={"COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"})
        .output
    )
    titles = re.findall(r"^(\w+):$", shown, re.MULTILINE)
    assert titles == ["Options", *COMMANDS]
    listed = re.findall(r"^  ([a-z]+)  ", shown.partition("Start:")[2], re.MULTILINE)
    assert listed == [name for commands in COMMANDS.values() for name in commands]
    assert len(listed) <= 17


def test_a_group_of_commands_without_titles_lists_them_under_one() -> None:
    shown = (
        CliRunner()
        .invoke(app, ["measure", "--help"], env={"COLUMNS": "100", "NO_COLOR": "1"})
        .output
    )
    assert re.findall(r"^  ([a-z]+)  ", shown.partition("Commands:")[2], re.MULTILINE) == [
        "collectives",
        "hardware",
        "memory",
    ]
