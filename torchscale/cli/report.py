"""``torchscale report``: a run folder as HTML, PDF, Markdown, CSV, JSON or a table."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.command import DefaultCommandGroup, words_of
from torchscale.cli.options import Several
from torchscale.cli.output import TERMINAL, print_json, result_console, status
from torchscale.cli.parameters import LOCAL, READS_FIGURES, argument, option
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
from torchscale.util.addresses import is_copy
from torchscale.util.gc import gc_paused

app = typer.Typer(
    cls=DefaultCommandGroup, invoke_without_command=True, subcommand_metavar="[SOURCE | COMMAND]"
)

SourceArgument = Annotated[
    Path | None,
    argument(
        "SOURCE",
        "Run, by name, directory or address. Default: the newest in ./results",
        show_default=False,
        **READS_FIGURES,
    ),
]
CostOption = Annotated[
    float | None,
    option("--cost DOLLARS", "Price of a device and hour: adds samples and tokens per dollar."),
]


@dataclass(frozen=True)
class _SourceOptions:
    """Which run."""

    source: Annotated[
        Path | None,
        option("--source -s DIR", "The same as the argument SOURCE.", **READS_FIGURES),
    ] = None
    latest: Annotated[
        bool, option("--latest", "The newest run in ./results: what no SOURCE takes.")
    ] = False

    def folder(self, words: Sequence[Path]) -> Path | None:
        """The one run folder that was named; ``None`` for the newest.

        Raises:
            UsageError: several were named, or one beside ``--latest``.
        """
        named = [*words, *([self.source] if self.source is not None else [])]
        if len(named) > 1:
            from torchscale.util.redaction import redact_arguments  # noqa: PLC0415 - compiles many patterns

            texts = [str(path) for path in named]
            raise UsageError(
                f"one run at a time, not {len(named)}",
                hint=shlex.join(["torchscale", "compare", *redact_arguments(texts)]),
            )
        if named and self.latest:
            raise UsageError(
                f"--latest and {named[0]} contradict each other", hint="leave one of them out"
            )
        return next(iter(named), None)


@dataclass(frozen=True)
class _ReportOptions:
    """What is written, and where."""

    formats: Annotated[
        Several,
        option(
            "--format -f NAME,…",
            "html, pdf, md, csv, json, terminal. Default: by the suffix of --output, else html",
        ),
    ] = None
    output: Annotated[
        str | None,
        option(
            "--output -o FILE",
            "File, or - for standard output. Default: report.<format> in the run folder; here for one "
            "at an address",
            **LOCAL,
        ),
    ] = None
    cost: CostOption = None
    summary: Annotated[
        bool,
        option(
            "--summary", "Short Markdown of at most 60 lines, for pull requests and job summaries."
        ),
    ] = False
    cell: Annotated[
        str | None,
        option(
            "--cell ID",
            "Print one cell as a vertical table: its id, or a part of it that only one has.",
        ),
    ] = None
    open_after: Annotated[bool, option("--open", "Open what was written in the browser.")] = False
    as_json: Annotated[bool, option("--json", "Print the run, or the cell, as JSON.")] = False


@app.callback()
def report(context: typer.Context, named: _SourceOptions, options: _ReportOptions) -> None:
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
        directory = named.folder([*map(Path, words_of(context))])
        _write_reports(directory, options)


@app.command("generate")
def generate(
    run_folder: SourceArgument = None, *, named: _SourceOptions, options: _ReportOptions
) -> None:
    """The same as [bold]torchscale report[/bold] without a subcommand."""
    directory = named.folder([run_folder] if run_folder is not None else [])
    _write_reports(directory, options)


@app.command("serve")
def serve(
    run_folder: SourceArgument = None,
    *,
    named: _SourceOptions,
    host: Annotated[
        str,
        option("--host NAME", "Address to listen on. Any other exposes the report to the network."),
    ] = "127.0.0.1",
    port: Annotated[int, option("--port", "0 takes a free one.", min=0, max=65535)] = 8642,
    cost: CostOption = None,
    open_after: Annotated[bool, option("--open", "Open the page in the browser.")] = False,
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
    directory = named.folder([run_folder] if run_folder is not None else [])
    if directory is not None and is_copy(directory):
        TERMINAL.note("note: what is at the address was fetched once; the page does not follow it")
    serve_report(
        directory,
        host=host,
        port=port,
        price=cost,
        observer=TERMINAL,
        on_ready=open_in_browser if open_after else lambda _: None,
    )


@gc_paused()
def _write_reports(source: Path | None, options: _ReportOptions) -> None:
    from torchscale.read.report import read_report  # noqa: PLC0415 - `--help` does not need it

    check_price(options.cost)
    output, summary, as_json = options.output, options.summary, options.as_json
    asked = bool(options.formats) or output is not None or summary or options.open_after
    if options.cell is not None:
        if asked or options.cost is not None:
            raise UsageError(
                f"--cell {options.cell} prints a table on the terminal",
                hint="leave the other options out",
            )
        of_run = read_report(source, observer=TERMINAL)
        if as_json:
            print_json(of_run.cell_json(options.cell))
        else:
            of_run.print_cell(options.cell, result_console())
        return
    refuse_two_documents("--output", output, as_json=as_json)
    default = ReportFormat.MARKDOWN if summary else ReportFormat.HTML
    chosen = chosen_formats(members("--format", options.formats, ReportFormat), default, output)
    if summary and chosen != [ReportFormat.MARKDOWN]:
        raise UsageError(
            f"--summary is Markdown, not {chosen[0].value}", hint="leave --format out, or give md"
        )
    report = read_report(source, price=options.cost, observer=TERMINAL)
    if as_json:
        print_json(report.render(ReportFormat.JSON).decode())
        chosen = [kind for kind in chosen if asked and kind is not ReportFormat.TERMINAL]
    written = []
    # What is fetched is gone when the command ends.
    place = Path() if is_copy(report.directory) else report.directory
    for kind in chosen:
        if kind is ReportFormat.TERMINAL:
            report.print_to(result_console())
            continue
        with status(f"Writing {kind.value}"):
            rendered = report.render(kind, summary=summary)
        name = "summary.md" if summary else f"report.{kind.value}"
        written.append(write_rendered(rendered, name, place, output))
    if options.open_after and written and written[0] is not None:
        open_in_browser(written[0].resolve().as_uri())
