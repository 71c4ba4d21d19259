"""Options and arguments of commands, written as their help shows them."""

from __future__ import annotations

from typing import Any

import typer

from torchscale.cli.addresses import local_path, readable, readable_text


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


LOCAL: dict[str, Any] = {"parser": local_path}
"""Settings of an argument that is no path for typer, and only a local one."""
READS: dict[str, Any] = {"parser": readable()}
"""Settings of an option or argument that is a path to read: it may be an address."""
READS_TEXT: dict[str, Any] = {"parser": readable_text}
"""The same, of a text that may also be a name."""
READS_FIGURES: dict[str, Any] = {"parser": readable(figures_alone=True)}
"""As :data:`READS`, where neither each step's own line nor recordings are read."""
