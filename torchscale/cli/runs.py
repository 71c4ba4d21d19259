"""``torchscale runs``: what was measured here, and what was kept under a name."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.command import Group, words_of
from torchscale.cli.options import BaselinesOption
from torchscale.cli.output import TERMINAL, note, print_json, result_console
from torchscale.errors import UsageError

app = typer.Typer(cls=Group, invoke_without_command=True, subcommand_metavar="[DIR | COMMAND]")


@app.callback()
def runs(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List the runs of a directory (default: results), newest first: state, cells measured of those
    planned, and one figure of each.

    report, compare, predict, export, history and profile take a run by the name in this list.

    [bold]Examples[/bold]

    [cyan]torchscale runs[/cyan]

    [cyan]torchscale runs /data/results --json[/cyan]

    [cyan]torchscale runs baselines[/cyan]
    """
    if context.invoked_subcommand is not None:
        return
    from torchscale.read.runs import list_runs, runs_json  # noqa: PLC0415
    from torchscale.report.formats.console import print_blocks  # noqa: PLC0415
    from torchscale.report.terminal.runs import runs_table  # noqa: PLC0415 - `--help` does not need it

    words = words_of(context)
    if len(words) > 1:
        raise UsageError(
            f"one directory at a time, not {len(words)}",
            hint=f"torchscale runs {shlex.quote(words[0])}",
        )
    entries = list_runs(Path(words[0]) if words else None, TERMINAL)
    if as_json:
        print_json(runs_json(entries))
        return
    if not entries:
        result_console().print("No run here yet. Measure one: torchscale benchmark")
        return
    rows = [
        (run.name, run.measured_at, run.state, run.done, run.planned, run.headline)
        for run in entries
    ]
    print_blocks([runs_table(rows)], result_console())
    TERMINAL.note(f"Next: torchscale report {shlex.quote(entries[0].name)}")


@app.command("baselines")
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
    from torchscale.features.compare.sections.result_set import result_set_blocks  # noqa: PLC0415
    from torchscale.features.compare.terminal.baselines import baselines_json, baselines_table  # noqa: PLC0415 - not for `--help`
    from torchscale.report.formats.console import print_blocks  # noqa: PLC0415

    if name is not None:
        results = read(name, directory)
        if as_json:
            print_json(results.model_dump_json(indent=1))
        else:
            print_blocks(result_set_blocks(results), result_console())
        return
    rows = baseline_rows(directory)
    if as_json:
        print_json(baselines_json(rows))
    elif rows:
        print_blocks([baselines_table(rows)], result_console())
    else:
        note(f"No baselines in {directory}; keep one with `torchscale compare RUN --save NAME`")
