"""``torchscale predict``: what would more GPUs give?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.options import Several
from torchscale.cli.output import TERMINAL, message_console, result_console, status
from torchscale.cli.parsing import integers
from torchscale.cli.rendering import chosen_formats, write_rendered
from torchscale.config.choices import ReportFormat
from torchscale.errors import UsageError

_MAX_REFUSALS = 20
"""Lines of a table with many series: about a screen."""


def predict(
    gpus: Annotated[Several, typer.Option("--gpus", "-n", metavar="N,…", help="Counts of GPUs to predict.")] = None,
    source: Annotated[
        Path | None, typer.Option("--source", metavar="DIR", help="A run folder that `torchscale benchmark` wrote.")
    ] = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--table",
            metavar="FILE",
            help="CSV with columns gpus, throughput; optional nodes, launch, samples or tokens, series, unit, link.",
        ),
    ] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option("--gpus-per-node", metavar="N", help="GPUs of a full node. Default: as measured.")
    ] = None,
    link: Annotated[
        str | None,
        typer.Option(
            "--link", metavar="NAME", help="Network between nodes (`torchscale list links`); must be measured."
        ),
    ] = None,
    cost: Annotated[float | None, typer.Option("--cost", metavar="PRICE", help="Price of a GPU and hour.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write a report with a chart: .html, .pdf, .md or .json."),
    ] = None,
) -> None:
    """Predict throughput, efficiency, time and cost at counts of GPUs that were not measured, with a 90 % interval.

    A law of compute, collectives and stragglers is fitted to the measured counts. Without two measured counts of nodes,
    far beyond what was measured, or where points contradict each other, nothing is predicted: exit code 3, with what to
    measure.

    [bold]Examples[/bold]

    [cyan]torchscale predict --source results/cluster --gpus 16,32,64 --cost 2.50[/cyan]

    [cyan]torchscale predict --table points.csv --gpus 64 --gpus-per-node 8 --json[/cyan]

    [cyan]torchscale predict --table points.csv --gpus 32,64 -o predict.html[/cyan]
    """
    from torchscale.report.terminal.prediction import print_predictions  # noqa: PLC0415 - `--help` does not need it
    from torchscale.run import predict as run  # noqa: PLC0415

    if (source is None) == (table is None):
        raise UsageError("name what to predict from", hint="either --source DIR or --table FILE")
    options = run.PredictOptions(tuple(integers("--gpus", gpus)), gpus_per_node, link, cost)
    with status("Reading the measurements"):
        report = (
            run.predict_run(source, options) if source is not None else run.predict_table(Path(table or ""), options)
        )
    if output is not None:
        kind = chosen_formats([], ReportFormat.HTML, output)[0]
        if kind is ReportFormat.CSV:
            raise UsageError(f"--output {output}: there is no csv here", hint="one of: html, pdf, md, json")
        write_rendered(run.render_predictions(report, kind), f"predict.{kind.value}", Path(), output)
    if as_json:
        typer.echo(run.predictions_json(report))
    elif output != "-":
        print_predictions(report, result_console())
    for text in report.notes:
        TERMINAL.note(f"note: {text}")
    for reason in () if as_json else report.refusals[:_MAX_REFUSALS]:
        message_console().print(f"refused: {reason}", markup=False, soft_wrap=True)
    if not as_json and len(report.refusals) > _MAX_REFUSALS:
        TERMINAL.note(f"{len(report.refusals) - _MAX_REFUSALS} more refused; --json lists all")
    raise typer.Exit(run.exit_code(report))
