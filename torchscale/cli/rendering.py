"""Where rendered bytes go: a file or standard output; what ``report`` and ``compare`` share."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TypeVar

import typer

from torchscale.cli.output import note
from torchscale.errors import OutputError, UsageError
from torchscale.util.addresses import with_addresses
from torchscale.util.extras import require
from torchscale.util.files import atomic_write_bytes
from torchscale.util.text import escape_json, strip_control

F = TypeVar("F", bound=Enum)

_SUFFIXES: Mapping[str, str] = {
    ".html": "html",
    ".htm": "html",
    ".pdf": "pdf",
    ".md": "md",
    ".markdown": "md",
    ".csv": "csv",
    ".json": "json",
}
"""Suffix of a file → the format that readers expect in it."""
_LIBRARIES: Mapping[str, tuple[str, ...]] = {
    "html": ("jinja2", "matplotlib"),
    "pdf": ("weasyprint", "jinja2", "matplotlib"),
}
"""Format → what renders it and is in no core installation."""


def chosen_formats(formats: Sequence[F] | None, default: F, output: str | None) -> list[F]:
    """The formats that were asked for, each once; without any the one of the suffix of ``output``.

    Raises:
        UsageError: there are several and one ``--output``, the suffix is of another format or of
            none, or what renders one is not installed.
    """
    suffix = "" if output is None or Path(output).is_dir() else Path(output).suffix.lower()
    named = _SUFFIXES.get(suffix, "")
    known = {kind.value: kind for kind in type(default)}
    if formats and output is not None and len(set(formats)) > 1:
        raise UsageError(
            f"--output {output} takes one --format, not {len(set(formats))}",
            hint="leave --output out: each gets its own file",
        )
    if suffix and not named and not formats:
        suffixes = [each for each, kind in _SUFFIXES.items() if kind in known]
        raise UsageError(
            f"--output {output}: {suffix} names no format; expected one of {', '.join(suffixes)}",
            hint="or say which with --format",
        )
    if named and named not in known:
        raise UsageError(
            f"--output {output}: there is no {named} here", hint=f"one of: {', '.join(known)}"
        )
    if formats and named and formats[0].value != named:
        raise UsageError(
            f"--format {formats[0].value} contradicts --output {output}",
            hint=f"leave --format out to write {named}, or choose another name",
        )
    chosen = list(dict.fromkeys(formats)) if formats else [known.get(named, default)]
    for kind in chosen:
        require_format(kind.value)
    return chosen


def refuse_two_documents(option: str, output: str | None, *, as_json: bool) -> None:
    """Check that standard output gets one document.

    Args:
        option: The option that names where a rendered document goes: ``--output``.
        output: The option's value.
        as_json: Whether the result is printed as JSON.

    Raises:
        UsageError: both go to standard output.
    """
    if as_json and output == "-":
        raise UsageError(
            f"--json and {option} - both print to standard output", hint="leave one of them out"
        )


def require_format(name: str) -> None:
    """Check that what renders a format is installed, before time goes into reading the run.

    Raises:
        UsageError: it is not.
    """
    for library in _LIBRARIES.get(name, ()):
        require(library, f"the format {name}")


def open_in_browser(address: str) -> None:
    """Open an address in the browser of this machine, or say that there is none."""
    import webbrowser  # noqa: PLC0415 - only `--open` needs it

    if not webbrowser.open(address):
        note(f"warning: no browser can be started here; open {address}")


def write_rendered(rendered: bytes, name: str, directory: Path, output: str | None) -> Path | None:
    """Write to ``output`` (a file, a directory or ``-``), else to ``name`` in ``directory``.

    Returns:
        The file; ``None`` for standard output.

    Raises:
        UsageError: a PDF is to go to the terminal.
        OutputError: it could not be written.
    """
    if not name.endswith(".pdf"):
        rendered = with_addresses(rendered.decode()).encode()
    if name.endswith(".json"):
        rendered = escape_json(rendered.decode()).encode()
    if output == "-":
        if name.endswith(".pdf"):
            raise UsageError("a PDF does not go to the terminal", hint="name a file with --output")
        text = rendered.decode()
        shown = strip_control(text, keep="\r") if sys.stdout.isatty() else text
        typer.echo(
            shown, nl=False, color=True
        )  # else click removes what looks like an escape sequence
        return None
    path = Path(output) if output is not None else directory / name
    if path.is_dir():
        path /= name
    if not path.parent.is_dir():
        raise OutputError(
            f"cannot write {path}: {path.parent} is not a directory", hint="create it first"
        )
    atomic_write_bytes(path, rendered)
    note(f"Wrote {path}")
    return path
