"""``torchscale measure``: what the machine gives without a training loop around it."""

from __future__ import annotations

import typer

from torchscale.cli.options import CONTEXT_SETTINGS
from torchscale.features.machine.cli.measure import collectives, hardware, memory

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Measure the machine: collectives over message sizes, peak rates, or the memory of a "
        "step.\n\n"
        "[bold]Examples[/bold]\n\n"
        "[cyan]torchscale measure collectives[/cyan]\n\n"
        "[cyan]torchscale measure hardware --disk /scratch[/cyan]\n\n"
        "[cyan]torchscale measure memory --model gpt2 --find-max-batch --gpus 1[/cyan]"
    ),
)

app.command("collectives", context_settings=CONTEXT_SETTINGS)(collectives.collectives)
app.command("hardware", context_settings=CONTEXT_SETTINGS)(hardware.hardware)
app.command("memory", context_settings=CONTEXT_SETTINGS)(memory.memory)
