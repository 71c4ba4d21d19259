"""Commands of earlier tools: they answer with the line to type."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from torchscale.cli.command import PlainGroup
from torchscale.errors import UsageError

REPLACED_BY: Mapping[str, str] = {
    "gen-config": "init",
    "generate-config": "init",
    "run": "benchmark",
    "suite": "benchmark",
    "bench": "benchmark",
    "sweep": "benchmark",
    "analyze": "profile analyze",
    "serve": "report serve",
    "models": "list models",
    "version": "--version",
}
"""Command of another tool, or a shorter guess → the command to type."""


class Program(PlainGroup):
    """The program: names that it does not know as commands may be those of another tool."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - its type moved within typer
        """As of any group.

        Raises:
            UsageError: the command is of another tool; the hint is the line to type.
        """
        name = args[0]
        if name not in self.commands and name in REPLACED_BY:
            line = shlex.join(["torchscale", *REPLACED_BY[name].split(), *args[1:]])
            raise UsageError(f"there is no command {name!r}", hint=f"type: {line}")
        return super().resolve_command(ctx, args)
