"""``torchscale baseline``: results kept under a name, in files that can be committed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.output import note, result_console, status

BaselinesOption = Annotated[Path, typer.Option("--baselines", help="Where baselines are kept.")]

app = typer.Typer(no_args_is_help=True, help="Keep results under a name, to compare with later.")


@app.command("save")
def save(
    name: Annotated[str, typer.Argument(help="Letters, digits, dots, dashes and underscores.")],
    source: Annotated[str, typer.Option("--source", "-s", help="Results directory, or a record.json.")],
    baselines: BaselinesOption = Path("baselines"),
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite a baseline of that name.")] = False,
) -> None:
    """Keep what a comparison needs of some results: every launch's figures, the config, the machine. One JSON file.

    [bold]Example[/bold]

    [cyan]torchscale baseline save main --source results/nightly && git add baselines/main.json[/cyan]
    """
    from torchscale.sources import load_source, save_baseline  # noqa: PLC0415 - `--help` does not need it

    with status("Reading"):
        results = load_source(source, baselines)
    path = save_baseline(results, name, baselines, replace=replace)
    measured = sum(bool(cell.launches) for cell in results.cells)
    note(f"Wrote {path} ({measured} of {len(results.cells)} cells measured)")


@app.command("list")
def list_all(
    baselines: BaselinesOption = Path("baselines"),
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Every baseline with what it holds; one that cannot be read is named as such."""
    import json  # noqa: PLC0415 - `--help` does not need it

    from torchscale.errors import TorchscaleError  # noqa: PLC0415
    from torchscale.sources import list_baselines, load_baseline  # noqa: PLC0415

    rows: list[dict[str, str | int]] = []
    for path in list_baselines(baselines):
        try:
            found = load_baseline(path.stem, baselines)
        except TorchscaleError as error:
            rows.append({"name": path.stem, "problem": error.message})
            continue
        launches = [len(cell.launches) for cell in found.cells if cell.launches]
        rows.append(
            {
                "name": path.stem,
                "measured_at": found.created_at,
                "device": ", ".join(sorted({cell.device for cell in found.cells if cell.device})),
                "cells": len(launches),
                "launches": min(launches, default=0),
            }
        )
    if as_json:
        typer.echo(json.dumps(rows, indent=1, ensure_ascii=False))
        return
    if not rows:
        note(f"No baselines in {baselines}; keep one with `torchscale baseline save NAME --source results/...`")
        return
    _print_list(rows)


def _print_list(rows: list[dict[str, str | int]]) -> None:
    from rich.markup import escape  # noqa: PLC0415 - `--help` does not need it
    from rich.table import Table  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for heading in ("name", "measured", "cells", "launches", "device"):
        table.add_column(heading, justify="right" if heading in ("cells", "launches") else "left", overflow="fold")
    for row in rows:
        if "problem" in row:
            table.add_row(escape(str(row["name"])), f"[red]{escape(str(row['problem']))}[/red]", "–", "–", "–")
            continue
        cells = [str(row[key]) for key in ("name", "measured_at", "cells", "launches", "device")]
        table.add_row(escape(cells[0]), cells[1][:10], cells[2], cells[3], escape(cells[4]))
    result_console().print(table)


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="Of the baseline.")],
    baselines: BaselinesOption = Path("baselines"),
    as_json: Annotated[bool, typer.Option("--json", help="The whole file.")] = False,
) -> None:
    """What a baseline holds: where and when it was measured, each cell with its launches."""
    from torchscale.report.comparison_console import print_result_set  # noqa: PLC0415 - `--help` does not need it
    from torchscale.sources import load_baseline  # noqa: PLC0415

    found = load_baseline(name, baselines)
    if as_json:
        typer.echo(found.model_dump_json(indent=1))
        return
    print_result_set(found, result_console())
