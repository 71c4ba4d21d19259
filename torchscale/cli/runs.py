"""``torchscale runs``: what was measured here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.output import TERMINAL, result_console


def runs(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Where run folders are.")] = Path("results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the runs of a directory, newest first: state, cells measured of those planned, and one figure of each.

    [bold]Examples[/bold]

    [cyan]torchscale runs[/cyan]

    [cyan]torchscale runs --json[/cyan]
    """
    from torchscale.report.terminal.runs import print_runs  # noqa: PLC0415 - `--help` does not need it
    from torchscale.run.runs import list_runs, runs_json  # noqa: PLC0415

    entries = list_runs(directory, TERMINAL)
    if as_json:
        typer.echo(runs_json(entries))
        return
    rows = [(run.id, run.measured_at, run.state, run.done, run.planned, run.headline) for run in entries]
    print_runs(rows, result_console())
    if entries:
        TERMINAL.note(f"Next: torchscale report {entries[0].directory}")
