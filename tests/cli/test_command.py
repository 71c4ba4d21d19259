"""Options that every command has, other spellings of options, groups that are commands."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from tests.cli.program import torchscale
from torchscale.cli.command import (
    OverridableGroup,
    as_typed,
    overrides_of,
    same_command,
    split_words,
    words_of,
)
from torchscale.cli.output import configure_output, is_quiet
from torchscale.cli.parameters import argument, option
from torchscale.cli.shared_options import finish_commands
from torchscale.errors import UsageError

OPTIONS = {"--format": True, "-f": True, "--open": False, "-q": False}


@pytest.mark.parametrize(
    ("arguments", "own", "words", "unknown"),
    [
        (["results/a"], [], ["results/a"], []),
        (
            ["--format", "pdf", "results/a", "--open"],
            ["--format", "pdf", "--open"],
            ["results/a"],
            [],
        ),
        (["--format=pdf", "a", "b"], ["--format=pdf"], ["a", "b"], []),
        (["-fpdf", "a"], ["-fpdf"], ["a"], []),
        (
            ["-q", "serve", "results/a", "--port", "0"],
            ["-q", "serve", "results/a", "--port", "0"],
            [],
            [],
        ),
        (["--format", "serve"], ["--format", "serve"], [], []),
        (["--a.b=1", "--c.d", "2", "--open"], ["--open"], [], ["--a.b=1", "--c.d", "2"]),
    ],
)
def test_arguments_of_a_group_are_its_options_its_words_and_what_it_does_not_know(
    arguments: list[str], own: list[str], words: list[str], unknown: list[str]
) -> None:
    assert split_words(arguments, OPTIONS, {"serve"}) == (own, words, unknown)


def test_a_word_before_a_subcommand_is_refused() -> None:
    with pytest.raises(UsageError, match="unexpected argument 'results/a' before serve"):
        split_words(["results/a", "serve"], OPTIONS, {"serve"})


def program() -> tuple[typer.Typer, dict[str, object]]:
    """A program with a command and a group, and what they were last called with."""
    app, group = typer.Typer(), typer.Typer(cls=OverridableGroup, invoke_without_command=True)
    seen: dict[str, object] = {}

    @app.command("measure")
    def measure(
        context: typer.Context,
        batch: Annotated[list[str] | None, typer.Option("--batch-size", "-b")] = None,
        wait: Annotated[bool, typer.Option("--wait")] = False,
    ) -> None:
        seen.update(
            batch=batch,
            typed=as_typed(context, "--batch-size"),
            again=same_command(context, without=("--wait", "-b")),
            quiet=is_quiet(),
        )

    @group.callback()
    def show(context: typer.Context, name: Annotated[str, typer.Option("--name")] = "") -> None:
        seen.update(
            name=name, words=words_of(context), overrides=overrides_of(context), quiet=is_quiet()
        )

    app.add_typer(group, name="show")
    finish_commands(app)
    return app, seen


@pytest.mark.parametrize("spelling", ["--batch-size", "--batch-sizes", "-b"])
def test_an_option_has_one_meaning_and_is_named_as_it_was_typed(spelling: str) -> None:
    app, seen = program()
    assert CliRunner().invoke(app, ["measure", spelling, "8,16", "--wait"]).exit_code == 0
    assert (seen["batch"], seen["typed"]) == (["8,16"], spelling)
    kept = "" if spelling == "-b" else f" {spelling} 8,16"
    assert seen["again"] == f"torchscale measure{kept}"


@pytest.mark.parametrize("arguments", [["measure", "-q"], ["show", "--quiet"]])
def test_quiet_also_stands_after_the_command(arguments: list[str]) -> None:
    app, seen = program()
    configure_output(verbose=False, quiet=False)
    try:
        assert CliRunner().invoke(app, arguments).exit_code == 0
        assert seen["quiet"] is True
    finally:
        configure_output(verbose=False, quiet=False)


def test_a_group_takes_words_and_overrides() -> None:
    app, seen = program()
    assert (
        CliRunner()
        .invoke(app, ["show", "here", "--name", "x", "--training.precision=bf16"])
        .exit_code
        == 0
    )
    assert seen == {
        "name": "x",
        "words": ["here"],
        "overrides": ["--training.precision=bf16"],
        "quiet": False,
    }


def test_flags_have_no_type_in_the_help(tmp_path: Path) -> None:
    for command in (["benchmark"], ["report"], ["validate"], ["profile"]):
        shown = torchscale(tmp_path, *command, "--help").stdout
        assert "bool" not in shown
        assert "--quiet" in shown
        assert "--verbose" in shown


def test_other_spellings_are_not_taken_from_a_subcommand() -> None:
    """It has options of its own: ``--batch-sizes`` may be one."""
    app, group = typer.Typer(), typer.Typer(cls=OverridableGroup, invoke_without_command=True)
    seen: dict[str, object] = {}

    @group.callback()
    def show(batch: Annotated[str, typer.Option("--batch-size")] = "") -> None:
        seen.update(batch=batch)

    @group.command("deep")
    def deep(sizes: Annotated[str, typer.Option("--batch-sizes")] = "") -> None:
        seen.update(sizes=sizes)

    app.add_typer(group, name="show")
    finish_commands(app)
    assert (
        CliRunner()
        .invoke(app, ["show", "--batch-sizes", "8", "deep", "--batch-sizes", "9"])
        .exit_code
        == 0
    )
    assert seen == {"batch": "8", "sizes": "9"}


@dataclass(frozen=True)
class Place:
    """Options that belong together."""

    where: Annotated[str, option("--where -w DIR", "Where it goes.")] = "here"
    deep: Annotated[bool, option("--deep", "Below it too.")] = False


def test_options_that_belong_together_are_given_as_one_object() -> None:
    app, seen = typer.Typer(), list[object]()

    @app.command("put")
    def put(name: Annotated[str, argument("NAME", "What.")], place: Place) -> None:
        seen.append((name, place))

    app.command("other")(lambda: None)
    finish_commands(app)
    for arguments in (["put", "a"], ["put", "a", "-w", "there", "--deep", "-v"]):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    assert seen == [("a", Place()), ("a", Place("there", deep=True))]
    shown = CliRunner().invoke(app, ["put", "--help"]).stdout
    order = [
        shown.index(text) for text in ("NAME  What.", "-w, --where DIR", "--deep", "--verbose")
    ]
    assert order == sorted(order)
