"""``torchscale list``: the names that a config may use."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from torchscale.cli.output import result_console
from torchscale.config.choices import CatalogKind


def list_names(
    kind: Annotated[CatalogKind | None, typer.Argument(help="What to list. Default: everything.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List models, strategies, precisions, optimizers, measurement presets, hardware presets, devices with their
    documented peaks, and links.

    [bold]Example[/bold]

    [cyan]torchscale list models[/cyan]
    """
    from torchscale.report.terminal.catalog import print_catalog  # noqa: PLC0415 - `--help` does not need it
    from torchscale.run.catalog import catalog_rows  # noqa: PLC0415

    rows = {one.value: catalog_rows(one) for one in ([kind] if kind is not None else CatalogKind)}
    if as_json:
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    for title, entries in rows.items():
        print_catalog(title, entries, result_console())
