"""``torchscale`` alone: the questions that it answers, each with its command, and what is here."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from torchscale.cli.help import styled
from torchscale.util.text import strip_control
from torchscale.version import __version__

if TYPE_CHECKING:
    from torchscale.read.here import Here

_COLUMN = 27
"""Where the commands begin: behind the longest question."""
_WIDTH = 80


def print_start() -> None:
    """Print the first page: at most 24 lines of 80 columns, unless a name here is long."""
    from torchscale.read.here import look_around  # noqa: PLC0415 - `--help` does not need it

    here = look_around()
    title = styled(f"[bold]torchscale {__version__}[/bold]")
    typer.echo(f"{title}: measures distributed training with PyTorch\n")
    for question, command in _questions(here):
        typer.echo(
            f"{question:{_COLUMN}}{styled('[cyan]{}[/cyan]').format(strip_control(command))}"
        )
    typer.echo(styled("\n[bold]Here:[/bold]"))
    for name, found in _found(here):
        typer.echo(f"  {name:{_COLUMN - 2}}{strip_control(found)}")
    typer.echo("\nAll commands: torchscale --help. A tutorial: torchscale docs tutorial")


def _questions(here: Here) -> Iterator[tuple[str, str]]:
    """Question and command, with the names that are here."""
    yield "My job is slow", "torchscale watch -- torchrun train.py"
    yield "Is this node fit?", "torchscale validate"
    yield "How well does it scale?", _benchmark(here)
    if here.runs:
        yield "", f"torchscale report {_shown(here.runs[0])}"
    else:
        yield "", "torchscale report"
    yield "Did my change help?", _compare(here)
    yield "Which change made it slow?", "torchscale bisect GOOD BAD -- python train.py"
    yield "It hangs", "torchscale autopsy PID"


def _benchmark(here: Here) -> str:
    if here.config is not None:
        return f"torchscale benchmark {_shown(here.config)}"
    workload = "--model resnet50 -b 64"
    if here.has_gpus is False:
        workload = "--model tiny-resnet -b 8"
    return f"torchscale benchmark {workload} -n 1,2"


def _compare(here: Here) -> str:
    if len(here.runs) > 1:
        newest, before = map(_shown, here.runs[:2])
        command = f"torchscale compare {before} {newest}"
        if _COLUMN + len(command) <= _WIDTH:
            return command
    return "torchscale compare A B"


def _found(here: Here) -> Iterator[tuple[str, str]]:
    """What, and what there is of it."""
    yield "GPUs", here.gpus
    if here.runs:
        others = f", the newest of {len(here.runs)}" if len(here.runs) > 1 else ""
        yield "runs", f"{_shown(here.runs[0])}{others}: {here.state}"
    else:
        yield "runs", "none in ./results"
    if here.config is not None:
        yield "config", _shown(here.config)
    else:
        yield "config", "none; torchscale init writes one"


def _shown(path: Path) -> str:
    return shlex.quote(str(path))
