"""``torchscale docs``: the documentation of this version, without a network; the names and schemas
it speaks of."""

from __future__ import annotations

import json
import shlex
from typing import Annotated

import typer

from torchscale.cli.command import DefaultCommandGroup, words_of
from torchscale.cli.output import print_json, result_console
from torchscale.cli.parameters import argument, option
from torchscale.config.choices import CatalogKind, ResultSchema
from torchscale.errors import UsageError

app = typer.Typer(
    cls=DefaultCommandGroup, invoke_without_command=True, subcommand_metavar="[PAGE | COMMAND]"
)


@app.callback()
def docs(
    context: typer.Context,
    as_json: Annotated[bool, option("--json", "Print the list, or the page, as JSON.")] = False,
) -> None:
    """Print a page of the documentation as Markdown, or the list of pages. All of it comes with the
    installation.

    [bold]Examples[/bold]

    [cyan]torchscale docs[/cyan]

    [cyan]torchscale docs configuration | less[/cyan]

    [cyan]torchscale docs names models[/cyan]
    """
    from torchscale.read.docs import list_pages, read_page  # noqa: PLC0415 - `--help` does not need it

    if context.invoked_subcommand is not None:
        return
    words = words_of(context)
    if len(words) > 1:
        raise UsageError(
            f"one page at a time, not {len(words)}", hint=f"torchscale docs {shlex.quote(words[0])}"
        )
    if words:
        text = read_page(words[0])
        if as_json:
            print_json(json.dumps({"page": words[0], "text": text}, ensure_ascii=False))
        else:
            typer.echo(text, nl=False)
        return
    if as_json:
        pages = [{"page": name, "title": title} for name, title in list_pages()]
        print_json(json.dumps(pages, indent=1, ensure_ascii=False))
        return
    from torchscale.report.formats.console import print_pairs  # noqa: PLC0415 - `--help` does not need it

    print_pairs(list_pages(), result_console())


@app.command("names")
def names(
    kind: Annotated[
        CatalogKind | None, typer.Argument(help="What to list. Default: everything.")
    ] = None,
    as_json: Annotated[bool, option("--json", "Print JSON.")] = False,
) -> None:
    """List the names that a config may use: models, strategies, precisions, optimizers, measurement
    presets, hardware presets, devices with their documented peaks, and links.

    [bold]Examples[/bold]

    [cyan]torchscale docs names models[/cyan]

    [cyan]torchscale docs names --json[/cyan]
    """
    from torchscale.read.catalog import catalog_rows  # noqa: PLC0415
    from torchscale.report.formats.console import print_blocks  # noqa: PLC0415 - `--help` does not need it
    from torchscale.report.terminal.catalog import catalog_table  # noqa: PLC0415

    kinds = list(CatalogKind) if kind is None else [kind]
    rows = {one.value: catalog_rows(one) for one in kinds}
    if as_json:
        print_json(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    tables = [catalog_table(title, entries) for title, entries in rows.items()]
    print_blocks(tables, result_console())


@app.command("schema")
def schema(
    name: Annotated[
        str, argument("NAME", f"config, {', '.join(each.value for each in ResultSchema)}.")
    ] = ResultSchema.REPORT.value,
) -> None:
    """Print the JSON Schema of a config, or of what commands write for other programs.

    Editors check and complete configs with it: save that of config, and put [cyan]#
    yaml-language-server: $schema=schema.json[/cyan] in the first line of a config. A document of
    results names its version in [cyan]schema_version[/cyan]; keys are added within a version and
    never renamed.

    [bold]Examples[/bold]

    [cyan]torchscale docs schema config > schema.json[/cyan]

    [cyan]torchscale docs schema compare > compare.schema.json[/cyan]
    """
    from torchscale.read.schemas import config_schema, results_schema  # noqa: PLC0415 - `--help` does not need it

    if name == "config":
        print_json(config_schema())
        return
    known = {each.value: each for each in ResultSchema}
    if name not in known:
        raise UsageError(f"there is no schema {name!r}", hint=f"one of: config, {', '.join(known)}")
    print_json(results_schema(known[name]))
