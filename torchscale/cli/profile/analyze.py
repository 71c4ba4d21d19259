"""``torchscale profile analyze``: recordings made elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.options import JsonOption
from torchscale.cli.output import TERMINAL, result_console
from torchscale.config.choices import WindowChoice


def analyze(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="PATH…",
            help=".nsys-rep, .sqlite, .json, .json.gz, .tar.gz, directories of them, or runs by "
            "name.",
        ),
    ],
    window: Annotated[
        WindowChoice,
        typer.Option("--window", help="auto: marked steps, else from first to last device span."),
    ] = WindowChoice.AUTO,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir", "-o", help="Also write analysis.json and a timeline for Perfetto here."
        ),
    ] = None,
    what_if: Annotated[
        bool,
        typer.Option(
            "--what-if",
            help="Also predict the step without each fault, by a replay; ranked by gain.",
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Analyze recordings made elsewhere, of one or many ranks; needs no torch and no GPU.

    With --what-if: what the step would be with each rank as fast as its peers, a link twice as
    fast, no host gaps, no wait for data … The recorded steps are replayed with that change.

    [bold]Examples[/bold]

    [cyan]torchscale profile analyze rank0.json.gz rank1.json.gz[/cyan]

    [cyan]torchscale profile analyze run.sqlite --json[/cyan]

    [cyan]torchscale profile analyze traces/ --what-if[/cyan]
    """
    from torchscale.measure.profile import analyze_recordings  # noqa: PLC0415
    from torchscale.report.terminal.profile import print_analysis, print_predictions  # noqa: PLC0415 - `--help` does not need it

    analysis = analyze_recordings(paths, window=window, output_dir=output_dir, observer=TERMINAL)
    if as_json:
        typer.echo(analysis.model_dump_json(indent=1))
        return
    print_analysis(analysis, result_console())
    if what_if:
        print_predictions(analysis, result_console())
    if output_dir is not None:
        TERMINAL.note(f"Wrote {output_dir}/analysis.json and a timeline for ui.perfetto.dev")
