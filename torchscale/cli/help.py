"""Help texts from docstrings, and their layout.

Plain text without boxes: typer's own layout imports half of rich, which would double the time of
``--help``.
"""

from __future__ import annotations

import inspect
import os
import re
import shutil
from collections.abc import Callable, Iterable
from typing import Any

MAX_WIDTH = 100
"""Columns of a help text: longer lines are hard to read."""

_MARKUP = re.compile(r"\[(/?)(bold|cyan)\]")
_INTEGER = re.compile(r" (<int( range)?>|INTEGER( RANGE)?)$")
"""What typer shows as the value of an option that takes a whole number, in its versions."""
_STYLES = {"bold": "\x1b[1m", "cyan": "\x1b[36m"}
_RESET = "\x1b[0m"


def help_of(function: Callable[..., object] | None) -> str | None:
    """The docstring of a command, one line per paragraph; ``None`` without one."""
    docstring = inspect.getdoc(function) if function is not None else None
    if docstring is None:
        return None
    return "\n\n".join(map(_joined, docstring.split("\n\n")))


def write_help(command: Any, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - click's types, which moved within typer
    """Write the help of a command or group: usage, text, arguments, options, subcommands.

    Colours are ANSI sequences; typer removes them where the output is no terminal.
    """
    formatter.width = max(40, min(MAX_WIDTH, shutil.get_terminal_size().columns))
    command.format_usage(ctx, formatter)
    _write_text(formatter, command.help or "")
    parameters = command.get_params(ctx)
    for parameter in parameters:
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""  # a flag takes no value
    records = [(parameter, parameter.get_help_record(ctx)) for parameter in parameters]
    arguments = [
        (record[0].partition(" ")[0], record[1])  # without a type
        for parameter, record in records
        if record and parameter.param_type_name == "argument"
    ]
    options = [
        record
        for parameter, record in records
        if record and parameter.param_type_name != "argument"
    ]
    options = [(_INTEGER.sub(" N", names), text) for names, text in options]
    _write_table(formatter, "Arguments", arguments)
    _write_table(formatter, "Options", options)
    panels: dict[str, list[tuple[str, str]]] = {}
    if hasattr(command, "listed"):
        for title, name, summary in command.listed(ctx):
            panels.setdefault(title, []).append((name, summary))
    width = max((len(name) for rows in panels.values() for name, _ in rows), default=0)
    for title, rows in panels.items():
        _write_table(formatter, title, [(name.ljust(width), text) for name, text in rows])


def argument_usage(argument: Any) -> str:  # noqa: ANN401
    """An argument in the line of usage: ``PID`` where it is required, else ``[PID]``. One that says
    itself how often it comes, as ``A B [C ...]`` and ``PATH…`` do, is left as it is."""
    text = str(argument.metavar or argument.name)
    if not argument.required and not text.startswith("["):
        text = f"[{text}]"
    return text


def _write_text(formatter: Any, text: str) -> None:  # noqa: ANN401
    """Paragraphs of a help text. Lines of code keep their form; examples follow each other without
    empty lines."""
    in_examples = False
    for paragraph in filter(None, text.split("\n\n")):
        is_heading = paragraph.startswith("[bold]Example")
        is_code = paragraph.startswith((" ", "[cyan]"))
        if not (in_examples and is_code):
            formatter.write_paragraph()
        in_examples = is_heading or (in_examples and is_code)
        if paragraph.startswith("[cyan]"):
            formatter.write(f"  {styled(paragraph)}\n")
        elif is_code:
            formatter.write(f"{paragraph}\n")
        else:
            text = _MARKUP.sub("", paragraph)  # where lines break, sequences would count as columns
            if is_heading:
                text = styled(f"[bold]{text}:[/bold]")
            formatter.write_text(text)


def _write_table(formatter: Any, title: str, rows: Iterable[tuple[str, str]]) -> None:  # noqa: ANN401
    """Two columns under a title: names, and what they mean."""
    shown = [(styled(f"[cyan]{name}[/cyan]"), styled(text)) for name, text in rows]
    if shown:
        formatter.write_paragraph()
        formatter.write(f"{styled(f'[bold]{title}:[/bold]')}\n")
        with formatter.indentation():
            formatter.write_dl(shown)


def panel_of(command: Any) -> str:  # noqa: ANN401
    """The title that a command stands under in the help of its group."""
    title = getattr(command, "rich_help_panel", None)
    if isinstance(title, str):
        return title
    return "Commands"


def summary_of(text: str | None) -> str:
    """The first paragraph."""
    return (text or "").partition("\n\n")[0]


def styled(text: str) -> str:
    """Markup as ANSI sequences, or without it where the user wants no colours. ``typer.echo`` takes
    them out where the output is no terminal."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return _MARKUP.sub("", text)
    return _MARKUP.sub(lambda match: _RESET if match[1] else _STYLES[match[2]], text)


def _joined(paragraph: str) -> str:
    """The paragraph on one line, unless it is indented as code is."""
    if paragraph.startswith(" "):
        return paragraph
    return " ".join(paragraph.split())
