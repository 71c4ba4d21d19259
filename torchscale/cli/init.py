"""``torchscale init``: a commented config to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.output import TERMINAL
from torchscale.errors import UsageError


def init(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Where to write it. Default: benchmark_config.yaml", show_default=False),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The same as the argument.")
    ] = None,
    hardware: Annotated[
        str | None,
        typer.Option(
            "--hardware",
            metavar="NAME",
            help="For a known machine (torchscale list hardware). Default: fitted to this one.",
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented config to start from, fitted to this machine or to a known kind.

    [bold]Examples[/bold]

    [cyan]torchscale init[/cyan]

    [cyan]torchscale init h100.yaml --hardware 8xh100[/cyan]
    """
    from torchscale.run.init import write_config  # noqa: PLC0415 - `--help` does not need it

    if path is not None and output is not None:
        raise UsageError(f"two files: {path} and {output}", hint="name one")
    file = path or output or Path("benchmark_config.yaml")
    written = write_config(file, hardware=hardware, force=force)
    there = "" if hardware is None else f" --hardware {hardware}"
    TERMINAL.note(f"Wrote {file} for {written.title}. Next: torchscale benchmark {file} --dry-run{there}")
    if hardware is not None:
        TERMINAL.note(f"Then, on that machine: torchscale benchmark {file}")
