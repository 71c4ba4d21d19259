"""Where rendered bytes go: a file or standard output; what ``report`` and ``compare`` share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import typer

from torchscale.cli.output import note
from torchscale.errors import OutputError, UsageError
from torchscale.util.files import atomic_write_bytes

F = TypeVar("F")


def chosen_formats(formats: Sequence[F] | None, default: F, output: str | None) -> list[F]:
    """The formats that were asked for, each once.

    Raises:
        UsageError: there are several, and one ``--output``.
    """
    chosen = list(dict.fromkeys(formats or [default]))
    if output is not None and len(chosen) > 1:
        raise UsageError(
            f"--output {output} takes one --format, not {len(chosen)}",
            hint="leave --output out: each gets its own file",
        )
    return chosen


def write_rendered(rendered: bytes, name: str, directory: Path, output: str | None) -> None:
    """Write to ``output`` (a file, a directory or ``-``), else to ``name`` in ``directory``.

    Raises:
        UsageError: a PDF is to go to the terminal.
        OutputError: it could not be written.
    """
    if output == "-":
        if name.endswith(".pdf"):
            raise UsageError("a PDF does not go to the terminal", hint="name a file with --output")
        typer.echo(rendered.decode(), nl=False)
        return
    path = Path(output) if output is not None else directory / name
    if path.is_dir():
        path /= name
    if not path.parent.is_dir():
        raise OutputError(f"cannot write {path}: {path.parent} is not a directory", hint="create it first")
    atomic_write_bytes(path, rendered)
    note(f"Wrote {path}")
