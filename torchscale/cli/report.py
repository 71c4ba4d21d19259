"""``torchscale report``: a run folder as HTML, PDF, Markdown, CSV, JSON or a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.output import TERMINAL, result_console, status
from torchscale.cli.rendering import chosen_formats, write_rendered
from torchscale.config.choices import ReportFormat, ResultSchema
from torchscale.errors import UsageError

app = typer.Typer(invoke_without_command=True)

SourceOption = Annotated[
    Path | None, typer.Option("--source", "-s", help="Run folder. Default: the only run in ./results")
]
FormatOption = Annotated[
    list[ReportFormat] | None, typer.Option("--format", "-f", help="May be given several times. Default: html")
]
OutputOption = Annotated[
    str | None,
    typer.Option("--output", "-o", help="File, or - for standard output. Default: report.<format> in the run folder"),
]
CostOption = Annotated[
    float | None, typer.Option("--cost", help="Dollars for a device and hour: adds samples and tokens per dollar.")
]


@app.callback()
def report(
    context: typer.Context,
    source: SourceOption = None,
    formats: FormatOption = None,
    output: OutputOption = None,
    cost: CostOption = None,
) -> None:
    """Show a run: HTML for people, PDF for paper, Markdown for pull requests, CSV and JSON for machines.

    Works on partial results too; missing parts are listed. Only the report is written to the run folder.

    [bold]Examples[/bold]

    [cyan]torchscale report --source results/demo[/cyan]

    [cyan]torchscale report --source results/demo --format html --format pdf[/cyan]

    [cyan]torchscale report --source results/demo --cost 2.50[/cyan]

    [cyan]torchscale report --source results/demo --format md --output - >> $GITHUB_STEP_SUMMARY[/cyan]
    """
    if context.invoked_subcommand is None:
        _write_reports(source, formats, output, cost)


@app.command("generate")
def generate(
    source: SourceOption = None, formats: FormatOption = None, output: OutputOption = None, cost: CostOption = None
) -> None:
    """The same as [bold]torchscale report[/bold] without a subcommand."""
    _write_reports(source, formats, output, cost)


@app.command("serve")
def serve(
    source: SourceOption = None,
    host: Annotated[
        str, typer.Option("--host", help="Address to listen on. Any other exposes the report to the network.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8642,
    cost: CostOption = None,
) -> None:
    """Show a run in the browser while it grows: the page follows as launches end. Ctrl-C ends it.

    [bold]Example[/bold]

    [cyan]torchscale report serve --source results/nightly[/cyan]
    """
    from torchscale.run.report import serve as serve_report  # noqa: PLC0415 - `--help` does not need it

    _check_price(cost)
    serve_report(source, host=host, port=port, price=cost, observer=TERMINAL)


@app.command("schema")
def schema(
    name: Annotated[ResultSchema, typer.Argument(help="What the JSON is from.")] = ResultSchema.REPORT,
) -> None:
    """Print the JSON Schema of what commands write for other programs: report and benchmark, compare, machine (comm,
    hardware, memory), max-batch, profile, validate, or a baseline file.

    A document names its version in [cyan]schema_version[/cyan]; keys are added within a version and never renamed.

    [bold]Example[/bold]

    [cyan]torchscale report schema compare > compare.schema.json[/cyan]
    """
    from torchscale.run.schemas import results_schema  # noqa: PLC0415 - `--help` does not need it

    typer.echo(results_schema(name))


def _check_price(price: float | None) -> None:
    if price is not None and not 0 < price < float("inf"):
        raise UsageError(f"--cost {price:g}: expected a price above 0 of a device and hour, such as 2.50")


def _write_reports(
    source: Path | None, formats: list[ReportFormat] | None, output: str | None, price: float | None
) -> None:
    from torchscale.run.report import read_report  # noqa: PLC0415 - `--help` does not need it

    _check_price(price)
    chosen = chosen_formats(formats, ReportFormat.HTML, output)
    report = read_report(source, price=price, observer=TERMINAL)
    for kind in chosen:
        if kind is ReportFormat.TERMINAL:
            report.print_to(result_console())
            continue
        with status(f"Writing {kind.value}"):
            rendered = report.render(kind)
        write_rendered(rendered, f"report.{kind.value}", report.directory, output)
