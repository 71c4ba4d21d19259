"""``torchscale report``: a run folder as HTML, PDF, Markdown, CSV, JSON or a table."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.command import Group, words_of
from torchscale.cli.options import Several
from torchscale.cli.output import TERMINAL, print_json, result_console, status
from torchscale.cli.parsing import check_price, members
from torchscale.cli.rendering import (
    chosen_formats,
    open_in_browser,
    refuse_two_documents,
    require_format,
    write_rendered,
)
from torchscale.config.choices import ReportFormat
from torchscale.errors import UsageError

app = typer.Typer(cls=Group, invoke_without_command=True, subcommand_metavar="[SOURCE | COMMAND]")

SourceArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="SOURCE",
        help="Run, by name or directory. Default: the newest in ./results",
        show_default=False,
    ),
]
SourceOption = Annotated[
    Path | None,
    typer.Option("--source", "-s", metavar="DIR", help="The same as the argument SOURCE."),
]
LatestOption = Annotated[
    bool, typer.Option("--latest", help="The newest run in ./results: what no SOURCE takes.")
]
FormatOption = Annotated[
    Several,
    typer.Option(
        "--format",
        "-f",
        metavar="NAME,…",
        help="html, pdf, md, csv, json, terminal. Default: by the suffix of --output, else html",
    ),
]
OutputOption = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="File, or - for standard output. Default: report.<format> in the run folder",
    ),
]
CostOption = Annotated[
    float | None,
    typer.Option(
        "--cost",
        metavar="DOLLARS",
        help="Price of a device and hour: adds samples and tokens per dollar.",
    ),
]
SummaryOption = Annotated[
    bool,
    typer.Option(
        "--summary", help="Short Markdown of at most 60 lines, for pull requests and job summaries."
    ),
]
CellOption = Annotated[
    str | None,
    typer.Option(
        "--cell",
        metavar="ID",
        help="Print one cell as a vertical table: its id, or a part of it that only one has.",
    ),
]
ReportJsonOption = Annotated[
    bool, typer.Option("--json", help="Print the run, or the cell, as JSON.")
]
OpenOption = Annotated[bool, typer.Option("--open", help="Open what was written in the browser.")]


@app.callback()
def report(
    context: typer.Context,
    source: SourceOption = None,
    latest: LatestOption = False,
    formats: FormatOption = None,
    output: OutputOption = None,
    cost: CostOption = None,
    summary: SummaryOption = False,
    cell: CellOption = None,
    open_after: OpenOption = False,
    as_json: ReportJsonOption = False,
) -> None:
    """Show a run: HTML for people, PDF for paper, Markdown for pull requests, CSV and JSON for
    machines.

    Works on partial results too; missing parts are listed. Only the report is written to the run
    folder.

    [bold]Examples[/bold]

    [cyan]torchscale report[/cyan]

    [cyan]torchscale report results/demo --format html,pdf[/cyan]

    [cyan]torchscale report results/demo --cost 2.50 --open[/cyan]

    [cyan]torchscale report results/demo --summary --output - >> $GITHUB_STEP_SUMMARY[/cyan]

    [cyan]torchscale report demo --cell resnet-b16-n2[/cyan]

    [cyan]torchscale report demo --json > demo.json[/cyan]
    """
    if context.invoked_subcommand is None:
        directory = _source([*map(Path, words_of(context))], source, latest=latest)
        _write_reports(
            directory,
            formats,
            output,
            cost,
            summary=summary,
            cell=cell,
            open_after=open_after,
            as_json=as_json,
        )


@app.command("generate")
def generate(
    run_folder: SourceArgument = None,
    source: SourceOption = None,
    latest: LatestOption = False,
    formats: FormatOption = None,
    output: OutputOption = None,
    cost: CostOption = None,
    summary: SummaryOption = False,
    cell: CellOption = None,
    open_after: OpenOption = False,
    as_json: ReportJsonOption = False,
) -> None:
    """The same as [bold]torchscale report[/bold] without a subcommand."""
    directory = _source([run_folder] if run_folder is not None else [], source, latest=latest)
    _write_reports(
        directory,
        formats,
        output,
        cost,
        summary=summary,
        cell=cell,
        open_after=open_after,
        as_json=as_json,
    )


@app.command("serve")
def serve(
    run_folder: SourceArgument = None,
    source: SourceOption = None,
    latest: LatestOption = False,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="NAME",
            help="Address to listen on. Any other exposes the report to the network.",
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")
    ] = 8642,
    cost: CostOption = None,
    open_after: Annotated[
        bool, typer.Option("--open", help="Open the page in the browser.")
    ] = False,
) -> None:
    """Show a run in the browser while it grows: the page follows as launches end. Ctrl-C ends it.

    A folder that does not exist yet is waited for, so that the page can be opened before the sweep
    begins. Prometheus can scrape the figures at /metrics; see [cyan]torchscale docs export[/cyan].

    [bold]Example[/bold]

    [cyan]torchscale report serve results/nightly[/cyan]
    """
    require_format(ReportFormat.HTML.value)
    from torchscale.read.serve import serve as serve_report  # noqa: PLC0415 - `--help` does not need it

    check_price(cost)
    directory = _source([run_folder] if run_folder is not None else [], source, latest=latest)
    serve_report(
        directory,
        host=host,
        port=port,
        price=cost,
        observer=TERMINAL,
        on_ready=open_in_browser if open_after else lambda _: None,
    )


def _source(words: list[Path], option: Path | None, *, latest: bool) -> Path | None:
    """The one run folder that was named; ``None`` for the newest.

    Raises:
        UsageError: several were named, or one beside ``--latest``.
    """
    named = [*words, *([option] if option is not None else [])]
    if len(named) > 1:
        from torchscale.util.redaction import redact_arguments  # noqa: PLC0415 - compiles many patterns

        texts = [str(path) for path in named]
        raise UsageError(
            f"one run at a time, not {len(named)}",
            hint=shlex.join(["torchscale", "compare", *redact_arguments(texts)]),
        )
    if named and latest:
        raise UsageError(
            f"--latest and {named[0]} contradict each other", hint="leave one of them out"
        )
    if named:
        return named[0]
    return None


def _write_reports(
    source: Path | None,
    formats: Several,
    output: str | None,
    price: float | None,
    *,
    summary: bool,
    cell: str | None,
    open_after: bool,
    as_json: bool,
) -> None:
    from torchscale.read.report import read_report  # noqa: PLC0415 - `--help` does not need it

    check_price(price)
    if cell is not None:
        if formats or output is not None or price is not None or summary or open_after:
            raise UsageError(
                f"--cell {cell} prints a table on the terminal", hint="leave the other options out"
            )
        of_run = read_report(source, observer=TERMINAL)
        if as_json:
            print_json(of_run.cell_json(cell))
        else:
            of_run.print_cell(cell, result_console())
        return
    refuse_two_documents("--output", output, as_json=as_json)
    default = ReportFormat.MARKDOWN if summary else ReportFormat.HTML
    chosen = chosen_formats(members("--format", formats, ReportFormat), default, output)
    if summary and chosen != [ReportFormat.MARKDOWN]:
        raise UsageError(
            f"--summary is Markdown, not {chosen[0].value}", hint="leave --format out, or give md"
        )
    report = read_report(source, price=price, observer=TERMINAL)
    if as_json:
        print_json(report.render(ReportFormat.JSON).decode())
        asked = bool(formats) or output is not None or summary or open_after
        chosen = [kind for kind in chosen if asked and kind is not ReportFormat.TERMINAL]
    written = []
    for kind in chosen:
        if kind is ReportFormat.TERMINAL:
            report.print_to(result_console())
            continue
        with status(f"Writing {kind.value}"):
            rendered = report.render(kind, summary=summary)
        name = "summary.md" if summary else f"report.{kind.value}"
        written.append(write_rendered(rendered, name, report.directory, output))
    if open_after and written and written[0] is not None:
        open_in_browser(written[0].resolve().as_uri())
