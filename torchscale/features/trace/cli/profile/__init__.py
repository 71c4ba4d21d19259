"""``torchscale profile``: record a workload or the user's own training, and report what limits it;
and what can be done with recordings."""

from __future__ import annotations

import typer

from torchscale.cli.command import WithProgram
from torchscale.features.trace.cli.profile import analyze, record, strip

app = typer.Typer(
    cls=WithProgram,
    invoke_without_command=True,
    subcommand_metavar="[CONFIG | COMMAND] [-- PROGRAM]",
)

app.callback()(record.profile)
app.command("analyze")(analyze.analyze)
app.command("strip")(strip.strip)
