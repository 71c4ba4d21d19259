"""``torchscale docs``: the documentation of this version, without a network."""

from __future__ import annotations

from typing import Annotated

import typer

from torchscale.cli.output import result_console


def docs(
    page: Annotated[
        str | None, typer.Argument(metavar="PAGE", help="A page of the list. Default: the list.", show_default=False)
    ] = None,
) -> None:
    """Print a page of the documentation as Markdown, or the list of pages. All of it comes with the installation.

    [bold]Examples[/bold]

    [cyan]torchscale docs[/cyan]

    [cyan]torchscale docs configuration | less[/cyan]
    """
    from torchscale.run.docs import list_pages, read_page  # noqa: PLC0415 - `--help` does not need it

    if page is not None:
        typer.echo(read_page(page), nl=False)
        return
    console = result_console()
    for name, title in list_pages():
        console.print(f"{name:<16}{title}", markup=False, soft_wrap=True)
