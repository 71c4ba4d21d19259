"""From a document to a file or the terminal; what ``report`` and ``compare`` share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from torchscale.cli.output import note
from torchscale.errors import OutputError, UsageError

if TYPE_CHECKING:
    from torchscale.report.document import Document


def render_document(kind: str, document: Document) -> bytes:
    """``kind`` is ``html``, ``pdf`` or ``md``."""
    if kind == "pdf":
        from torchscale.report.pdf import render_pdf  # noqa: PLC0415 - loads system libraries

        return render_pdf(document)
    if kind == "md":
        from torchscale.report.markdown import render_markdown  # noqa: PLC0415

        return render_markdown(document).encode()
    from torchscale.report.html import render_html  # noqa: PLC0415 - reads plotly's script

    return render_html(document).encode()


def write_rendered(rendered: bytes, name: str, directory: Path, output: str | None) -> None:
    """To ``output`` (a file, a directory or ``-``), else to ``name`` in ``directory``.

    Raises:
        UsageError: a PDF is to go to the terminal.
        OutputError: it could not be written.
    """
    from torchscale.store import atomic_write_bytes  # noqa: PLC0415 - `--help` does not need it

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
