"""``torchscale init``: a commented config to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.output import TERMINAL


def init(
    path: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("benchmark_config.yaml"),
    hardware: Annotated[
        str | None,
        typer.Option("--hardware", help="For a known machine (torchscale list hardware). Default: fitted to this one."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write a commented config to start from, fitted to this machine or to a known kind.

    [bold]Examples[/bold]

    [cyan]torchscale init[/cyan]

    [cyan]torchscale init h100.yaml --hardware 8xh100[/cyan]
    """
    from torchscale.run.init import write_config  # noqa: PLC0415 - `--help` does not need it

    preset = write_config(path, hardware=hardware, force=force)
    TERMINAL.note(f"Wrote {path} for {preset.title}. Next: torchscale benchmark {path} --dry-run")
