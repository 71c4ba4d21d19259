"""``torchscale predict``: what would more GPUs give?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.options import Several
from torchscale.cli.output import TERMINAL, print_json, result_console, status, tell
from torchscale.cli.parameters import LOCAL, READS, READS_FIGURES, argument, option
from torchscale.cli.parsing import integers
from torchscale.cli.rendering import chosen_formats, refuse_two_documents, write_rendered
from torchscale.config.choices import ReportFormat
from torchscale.errors import UsageError

_MAX_REFUSALS = 20
"""Lines of a table with many series: about a screen."""


def predict(
    run_folder: Annotated[
        Path | None,
        argument(
            "RUN",
            "Run, by name, directory or address. Default: the newest in ./results",
            show_default=False,
            **READS_FIGURES,
        ),
    ] = None,
    gpus: Annotated[Several, option("--gpus -n N,…", "Counts of GPUs to predict.")] = None,
    source: Annotated[
        Path | None,
        option("--source -s DIR", "The same as the argument RUN.", **READS_FIGURES),
    ] = None,
    table: Annotated[
        Path | None,
        option(
            "--table FILE",
            "CSV with columns gpus, throughput; optional nodes, launch, samples or tokens, "
            "series, unit, link.",
            **READS,
        ),
    ] = None,
    gpus_per_node: Annotated[
        int | None, option("--gpus-per-node N", "GPUs of a full node. Default: as measured.")
    ] = None,
    link: Annotated[
        str | None,
        option(
            "--link NAME",
            "Network between nodes (`torchscale docs names links`); must be measured.",
        ),
    ] = None,
    cost: Annotated[float | None, option("--cost PRICE", "Price of a GPU and hour.")] = None,
    as_json: Annotated[bool, option("--json", "Print JSON.")] = False,
    output: Annotated[
        str | None,
        option(
            "--output -o FILE", "Write a report with a chart: .html, .pdf, .md or .json.", **LOCAL
        ),
    ] = None,
) -> None:
    """Predict throughput, efficiency, time and cost at counts of GPUs that were not measured, with
    a 90 % interval.

    A law of compute, collectives and stragglers is fitted to the measured counts. Without two
    measured counts of nodes, far beyond what was measured, or where points contradict each other,
    nothing is predicted: exit code 3, with what to measure.

    [bold]Examples[/bold]

    [cyan]torchscale predict results/cluster --gpus 16,32,64 --cost 2.50[/cyan]

    [cyan]torchscale predict --table points.csv --gpus 64 --gpus-per-node 8 --json[/cyan]

    [cyan]torchscale predict --table points.csv --gpus 32,64 -o predict.html[/cyan]
    """
    from torchscale.features.decide.forecast import run  # noqa: PLC0415
    from torchscale.features.decide.forecast.tables import print_predictions  # noqa: PLC0415 - `--help` does not need it

    named = [each for each in (run_folder, source, table) if each is not None]
    if len(named) > 1:
        raise UsageError(f"one source at a time, not {len(named)}: {', '.join(map(str, named))}")
    refuse_two_documents("--output", output, as_json=as_json)
    options = run.PredictOptions(tuple(integers("--gpus", gpus)), gpus_per_node, link, cost)
    with status("Reading the measurements"):
        if table is not None:
            report = run.predict_table(table, options)
        else:
            report = run.predict_run(run_folder or source, options, TERMINAL)
    if output is not None:
        kind = chosen_formats([], ReportFormat.HTML, output)[0]
        if kind is ReportFormat.CSV:
            raise UsageError(
                f"--output {output}: there is no csv here", hint="one of: html, pdf, md, json"
            )
        write_rendered(
            run.render_predictions(report, kind), f"predict.{kind.value}", Path(), output
        )
    if as_json:
        print_json(run.predictions_json(report))
    elif output != "-":
        print_predictions(report, result_console())
    for text in report.notes:
        TERMINAL.note(f"note: {text}")
    for reason in () if as_json else report.refusals[:_MAX_REFUSALS]:
        tell(f"refused: {reason}")
    if not as_json and len(report.refusals) > _MAX_REFUSALS:
        TERMINAL.note(f"{len(report.refusals) - _MAX_REFUSALS} more refused; --json lists all")
    raise typer.Exit(run.exit_code(report))
