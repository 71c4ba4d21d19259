"""``torchscale validate``: is this node fit."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.output import result_console, status
from torchscale.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from torchscale.schema.check import Check, Validation

RESULTS = Path("results")


class Requirement(str, Enum):
    """Values of ``--require``."""

    CUDA = "cuda"
    NCCL = "nccl"
    NSYS = "nsys"


def validate(
    require: Annotated[
        list[Requirement] | None,
        typer.Option("--require", help="Exit with 3 unless this machine has it. May be given several times."),
    ] = None,
    min_gpus: Annotated[
        int, typer.Option("--min-gpus", min=0, help="Exit with 3 with fewer usable GPUs; implies CUDA.")
    ] = 0,
    output_dir: Annotated[
        Path, typer.Option("--output-dir", "-o", help="Where results would go: its disk is checked.")
    ] = RESULTS,
    timeout: Annotated[str, typer.Option("--timeout", help="Bound on the collective: 30, 90s or 2m.")] = "2m",
    as_json: Annotated[bool, typer.Option("--json", help="Print checks and facts as JSON.")] = False,
) -> None:
    """Check whether this node is fit: software, GPUs, interconnect, host, disk, and a real two-rank collective.

    A node without a GPU is fit for CPU benchmarking and says so.

    Exit codes: 0 fit, warnings included; 1 a check failed; 3 this machine lacks what --require or --min-gpus asks for.

    [bold]Examples[/bold]

    [cyan]torchscale validate[/cyan]

    [cyan]torchscale validate --require cuda --min-gpus 8 --json > node.json[/cyan]
    """
    from torchscale.analysis.health import (  # noqa: PLC0415 - `--help` does not need it
        Requirements,
        lacks_required_device,
        validate_facts,
    )
    from torchscale.launch.probe import check_collective, probe_node  # noqa: PLC0415
    from torchscale.units import parse_duration  # noqa: PLC0415

    try:
        timeout_seconds = parse_duration(timeout)
    except ValueError as error:
        raise UsageError(f"--timeout: {error}") from error
    if timeout_seconds <= 0:
        raise UsageError(f"--timeout: {timeout!r} leaves no time; write 30, 30s or 2m")
    wanted = set(require or ())
    with status("Looking at this node"):
        facts = probe_node(output_dir)
    with status("Running a collective of two ranks"):
        collective = check_collective(facts, timeout_seconds=timeout_seconds)
    facts = facts.model_copy(update={"collective": collective})
    requirements = Requirements(
        cuda=Requirement.CUDA in wanted,
        gpus=min_gpus,
        nccl=Requirement.NCCL in wanted,
        nsys=Requirement.NSYS in wanted,
    )
    validation = validate_facts(facts, requirements)
    if as_json:
        typer.echo(validation.model_dump_json(indent=1))
    else:
        _print(validation, result_console())
    if lacks_required_device(validation):
        raise typer.Exit(ExitCode.UNABLE)
    raise typer.Exit(ExitCode.OK if validation.fit else ExitCode.FAILED)


def _print(validation: Validation, console: Console) -> None:
    """Checks by group, what was expected and what to do under those that did not pass, the verdict last."""
    from rich.markup import escape  # noqa: PLC0415 - `--help` does not need it
    from rich.table import Table  # noqa: PLC0415

    styles = {"pass": "green", "warn": "yellow", "fail": "bold red", "n/a": "dim"}
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    group = ""
    for check in validation.checks:
        if check.group != group:
            group = check.group
            table.add_row(f"[bold]{escape(group)}[/bold]", "", "")
        style = styles[check.status.value]
        table.add_row(f"  [{style}]{check.status.value:<4}[/{style}]", escape(check.title), _words(check))
    console.print(table)
    console.print()
    console.print(validation.verdict, style="bold" if validation.fit else "bold red", markup=False)


def _words(check: Check) -> str:
    from rich.markup import escape  # noqa: PLC0415 - `--help` does not need it

    seen = f"[dim]{escape(check.seen)}[/dim]" if check.status.value == "n/a" else escape(check.seen)
    lines = [seen]
    if check.expected:
        lines.append(f"[dim]expected:[/dim] {escape(check.expected)}")
    if check.advice:
        lines.append(f"[dim]do:[/dim] {escape(check.advice)}")
    return "\n".join(lines)
