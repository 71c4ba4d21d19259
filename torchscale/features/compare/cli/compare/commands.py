"""``torchscale compare -- 'COMMAND A' 'COMMAND B'``: commands that are launched by turns."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.command import given_options, same_command
from torchscale.cli.output import TERMINAL
from torchscale.cli.parameters import option
from torchscale.cli.parsing import parse_seconds
from torchscale.errors import ExitCode, UsageError
from torchscale.util.optional import optional

if TYPE_CHECKING:
    from torchscale.features.compare.compare import Rules
    from torchscale.features.compare.sections.document import ComparisonReport

_OF_COMMANDS = frozenset(
    {"over", "budget", "max_launches", "launch_seconds", "timeout", "output_dir", "dry_run"}
)
"""Options for commands alone."""
_ALSO_OF_COMMANDS = frozenset(
    {"sources", "why", "threshold", "fail_on", "accept", "formats", "output", "as_json"}
) | {"verbose", "quiet"}
"""Options of comparisons of results that commands take, too."""


@dataclass(frozen=True)
class LaunchOptions:
    """How commands are launched."""

    over: Annotated[
        str | None,
        option(
            "--over NAME=V1,V2,…",
            "After -- is one command with {NAME}: compare each value with the first.",
        ),
    ] = None
    max_launches: Annotated[
        int, option("--max-launches N", "Launches of each command, at most.", min=3, max=1000)
    ] = 20
    budget: Annotated[
        str | None, option("--budget TIME", "No round of launches begins after so long.")
    ] = None
    launch_seconds: Annotated[
        str, option("--launch-seconds TIME", "Steps measured in each launch.")
    ] = "5s"
    timeout: Annotated[str, option("--timeout TIME", "Longest launch.")] = "30m"
    output_dir: Annotated[
        Path | None,
        option("--output-dir DIR", "Folder of the launches. Default: results/compare-<digest>"),
    ] = None
    dry_run: Annotated[
        bool, option("--dry-run", "Show the commands and launches; launch nothing.")
    ] = False


def check_options(context: typer.Context, words: list[str] | None) -> None:
    """That options fit what is compared: results, or the commands in ``words``.

    Raises:
        UsageError: one does not.
    """
    for name, spelling in given_options(context).items():
        if words is None and name in _OF_COMMANDS:
            raise UsageError(
                f"{spelling} is for commands after --",
                hint="torchscale compare -- 'torchrun … a.py' 'torchrun … b.py'",
            )
        if words is not None and name not in _OF_COMMANDS | _ALSO_OF_COMMANDS:
            raise UsageError(
                f"{spelling} is for results, and -- is followed by commands",
                hint="compare their folders afterwards: torchscale compare A B",
            )


def launched(
    context: typer.Context, words: list[str], options: LaunchOptions, rules: Rules
) -> ComparisonReport:
    """Launch the commands by turns, and compare what they left.

    Raises:
        UsageError: they or the options are no comparison.
        typer.Exit: it was interrupted, or only to be shown.
    """
    from torchscale.features.compare.commands.rounds import (  # noqa: PLC0415 - results need none
        CommandComparison,
        compare_commands,
    )
    from torchscale.features.compare.commands.sides import folder_of, parse_sides  # noqa: PLC0415

    sides = parse_sides(words, options.over)
    seconds = parse_seconds("--launch-seconds", options.launch_seconds)
    request = CommandComparison(
        sides,
        options.output_dir or folder_of(sides, seconds),
        rules,
        options.max_launches,
        optional(partial(parse_seconds, "--budget"), options.budget),
        seconds,
        parse_seconds("--timeout", options.timeout),
    )
    for line in request.plan():
        TERMINAL.note(line)
    if options.dry_run:
        raise typer.Exit
    comparison = compare_commands(request, TERMINAL, TERMINAL.note)
    if comparison is None:
        TERMINAL.note(f"Interrupted. The same command continues: {same_command(context)}")
        raise typer.Exit(ExitCode.INTERRUPTED)
    folders = " ".join(map(os.path.relpath, request.folders))
    TERMINAL.note(f"Kept, with what takes longer: torchscale compare --why {folders}")
    return comparison
