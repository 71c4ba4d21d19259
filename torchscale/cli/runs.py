"""``torchscale runs``: what was measured here, and what was kept under a name."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.command import DefaultCommandGroup, words_of
from torchscale.cli.output import TERMINAL, print_json, result_console
from torchscale.cli.parameters import option
from torchscale.door import Slot
from torchscale.errors import UsageError

app = typer.Typer(
    cls=DefaultCommandGroup, invoke_without_command=True, subcommand_metavar="[DIR | COMMAND]"
)


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
    from torchscale.report.formats.console import print_blocks, print_line  # noqa: PLC0415
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
        print_line("No run here yet. Measure one: torchscale benchmark", result_console())
        return
    rows = [
        (run.name, run.measured_at, run.state, run.done, run.planned, run.headline)
        for run in entries
    ]
    print_blocks([runs_table(rows)], result_console())
    TERMINAL.note(f"Next: torchscale report {shlex.quote(entries[0].name)}")


_OF_FEATURES: Slot[Callable[..., None]] = Slot("commands of runs")
for _name in _OF_FEATURES:
    app.command(_name)(_OF_FEATURES[_name])
