"""``torchscale runs``: what was measured here, and what was kept under a name."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.command import Group, words_of
from torchscale.cli.options import BaselinesOption
from torchscale.cli.output import TERMINAL, note, print_json, result_console
from torchscale.cli.parameters import argument, option
from torchscale.errors import UsageError

app = typer.Typer(cls=Group, invoke_without_command=True, subcommand_metavar="[DIR | COMMAND]")


@app.callback()
def runs(
    context: typer.Context,
    as_json: Annotated[bool, option("--json", "Print JSON.")] = False,
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
    from torchscale.report.terminal.runs import print_runs  # noqa: PLC0415 - `--help` does not need it

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
    rows = [
        (run.name, run.measured_at, run.state, run.done, run.planned, run.headline)
        for run in entries
    ]
    print_runs(rows, result_console())
    if entries:
        TERMINAL.note(f"Next: torchscale report {shlex.quote(entries[0].name)}")


@app.command("baselines")
def baselines(
    name: Annotated[
        str | None, argument("NAME", "Show this one. Default: the list.", show_default=False)
    ] = None,
    directory: BaselinesOption = Path("baselines"),
    as_json: Annotated[bool, option("--json", "Print JSON: the list, or the whole file.")] = False,
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
