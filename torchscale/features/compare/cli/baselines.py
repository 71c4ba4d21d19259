"""``torchscale runs baselines``: what was kept under a name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.options import BaselinesOption
from torchscale.cli.output import note, print_json, result_console


def baselines(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME", help="Show this one. Default: the list.", show_default=False
        ),
    ] = None,
    directory: BaselinesOption = Path("baselines"),
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: the list, or the whole file.")
    ] = False,
) -> None:
    """List the results that [bold]compare --save[/bold] kept under a name, or show one: where and
    when it was measured, each cell with its launches. One that cannot be read is named as such.

    Each is one JSON file in the directory of baselines: remove it with rm.

    [bold]Examples[/bold]

    [cyan]torchscale runs baselines[/cyan]

    [cyan]torchscale runs baselines main --json[/cyan]
    """
    from torchscale.features.compare.baselines import baseline_rows, read  # noqa: PLC0415
    from torchscale.features.compare.terminal.baselines import baselines_json, print_baselines  # noqa: PLC0415 - not for `--help`
    from torchscale.features.compare.terminal.comparison import print_result_set  # noqa: PLC0415

    if name is not None:
        results = read(name, directory)
        if as_json:
            print_json(results.model_dump_json(indent=1))
        else:
            print_result_set(results, result_console())
        return
    rows = baseline_rows(directory)
    if as_json:
        print_json(baselines_json(rows))
    elif rows:
        print_baselines(rows, result_console())
    else:
        note(f"No baselines in {directory}; keep one with `torchscale compare RUN --save NAME`")
