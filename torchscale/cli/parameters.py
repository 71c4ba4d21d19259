"""Options and arguments of commands, written as their help shows them."""

from __future__ import annotations

from typing import Any

import typer


def option(spelling: str, text: str, **settings: Any) -> Any:  # noqa: ANN401 - typer's own are of any type
    """An option of a command.

    Args:
        spelling: Its names, then what its value is called: ``--output-dir -o DIR``.
        text: Its line in the help.
        settings: Further ones of :func:`typer.Option`.
    """
    names = [word for word in spelling.split() if word.startswith("-")]
    value = " ".join(word for word in spelling.split() if not word.startswith("-"))
    return typer.Option(*names, metavar=value or None, help=text, **settings)


def argument(value: str, text: str, **settings: Any) -> Any:  # noqa: ANN401 - as above
    """An argument of a command: what its value is called, and its line in the help."""
    return typer.Argument(metavar=value, help=text, **settings)
