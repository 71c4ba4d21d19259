"""Help texts from docstrings: a paragraph's line breaks do not reach the terminal, which wraps to its own width."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import typer


def join_paragraphs(app: typer.Typer) -> None:
    """Set the help of every command and group below ``app`` from its docstring, one line per paragraph.

    A group that was given a help text keeps it.
    """
    if app.registered_callback is not None and not isinstance(app.info.help, str):
        app.registered_callback.help = _help_of(app.registered_callback.callback)
    for command in app.registered_commands:
        command.help = _help_of(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None:
            join_paragraphs(group.typer_instance)


def _help_of(function: Callable[..., object] | None) -> str | None:
    docstring = inspect.getdoc(function) if function is not None else None
    return None if docstring is None else "\n\n".join(map(_joined, docstring.split("\n\n")))


def _joined(paragraph: str) -> str:
    """In one line, unless it is indented as code is."""
    return paragraph if paragraph.startswith(" ") else " ".join(paragraph.split())
