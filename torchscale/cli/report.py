"""``torchscale report``: a run folder as HTML, PDF, Markdown, CSV, JSON or a table."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.output import note, result_console, status
from torchscale.errors import OutputError, UsageError

if TYPE_CHECKING:
    from torchscale.analysis.results import RunSummary

RESULTS = Path("results")

app = typer.Typer(invoke_without_command=True)


class Format(str, Enum):
    """Values of ``--format``."""

    HTML = "html"
    PDF = "pdf"
    MARKDOWN = "md"
    CSV = "csv"
    JSON = "json"
    TERMINAL = "terminal"


SourceOption = Annotated[
    Path | None, typer.Option("--source", "-s", help="Run folder. Default: the only run in ./results")
]
FormatOption = Annotated[
    list[Format] | None, typer.Option("--format", "-f", help="May be given several times. Default: html")
]
OutputOption = Annotated[
    str | None,
    typer.Option("--output", "-o", help="File, or - for standard output. Default: report.<format> in the run folder"),
]


@app.callback()
def report(
    context: typer.Context, source: SourceOption = None, formats: FormatOption = None, output: OutputOption = None
) -> None:
    """Show a run: HTML for people, PDF for paper, Markdown for pull requests, CSV and JSON for machines.

    Works on partial results too; what is missing is said. Nothing in the run folder is changed but the report.

    [bold]Examples[/bold]

    [cyan]torchscale report --source results/demo[/cyan]

    [cyan]torchscale report --source results/demo --format html --format pdf[/cyan]

    [cyan]torchscale report --source results/demo --format md --output - >> $GITHUB_STEP_SUMMARY[/cyan]
    """
    if context.invoked_subcommand is None:
        _write_reports(source, formats, output)


@app.command("generate")
def generate(source: SourceOption = None, formats: FormatOption = None, output: OutputOption = None) -> None:
    """The same as [bold]torchscale report[/bold] without a subcommand."""
    _write_reports(source, formats, output)


def _write_reports(source: Path | None, formats: list[Format] | None, output: str | None) -> None:
    from torchscale.analysis.results import summarize  # noqa: PLC0415 - `--help` does not need it
    from torchscale.store import load_run  # noqa: PLC0415

    chosen = list(dict.fromkeys(formats or [Format.HTML]))
    if output is not None and len(chosen) > 1:
        raise UsageError(
            f"--output {output} takes one --format, not {len(chosen)}",
            hint="leave --output out: each gets its own file",
        )
    directory = source if source is not None else _only_run()
    with status("Reading the run"):
        summary = summarize(load_run(directory))
    for kind in chosen:
        if kind is Format.TERMINAL:
            _print_terminal(summary)
        else:
            _write(kind, summary, directory, output)


def _write(kind: Format, summary: RunSummary, directory: Path, output: str | None) -> None:
    from torchscale.store import atomic_write_bytes  # noqa: PLC0415 - `--help` does not need it

    if output == "-" and kind is Format.PDF:
        raise UsageError("a PDF does not go to the terminal", hint="name a file with --output")
    with status(f"Writing {kind.value}"):
        content = _render(kind, summary)
    if output == "-":
        typer.echo(content.decode(), nl=False)
        return
    path = Path(output) if output is not None else directory / f"report.{kind.value}"
    if path.is_dir():
        path /= f"report.{kind.value}"
    if not path.parent.is_dir():
        raise OutputError(f"cannot write {path}: {path.parent} is not a directory", hint="create it first")
    atomic_write_bytes(path, content)
    note(f"Wrote {path}")


def _render(kind: Format, summary: RunSummary) -> bytes:
    from torchscale.report.build import build_document  # noqa: PLC0415 - `--help` does not need it
    from torchscale.report.export import summary_csv, summary_json  # noqa: PLC0415

    if kind is Format.CSV:
        return summary_csv(summary).encode()
    if kind is Format.JSON:
        return (summary_json(summary) + "\n").encode()
    document = build_document(summary)
    if kind is Format.PDF:
        from torchscale.report.pdf import render_pdf  # noqa: PLC0415 - loads system libraries

        return render_pdf(document)
    if kind is Format.MARKDOWN:
        from torchscale.report.markdown import render_markdown  # noqa: PLC0415

        return render_markdown(document).encode()
    from torchscale.report.html import render_html  # noqa: PLC0415 - reads plotly's script

    return render_html(document).encode()


def _print_terminal(summary: RunSummary) -> None:
    from torchscale.report.console import print_results  # noqa: PLC0415 - `--help` does not need it
    from torchscale.report.verdict import verdict  # noqa: PLC0415

    console = result_console()
    for paragraph in verdict(summary):
        console.print(paragraph, markup=False)
    print_results(summary, console)


def _only_run() -> Path:
    """The single run under ``./results``.

    Raises:
        UsageError: there is none, or there are several.
    """
    runs = sorted(path.parent for path in RESULTS.glob("*/experiment.json"))
    if len(runs) == 1:
        return runs[0]
    if not runs:
        raise UsageError("no --source, and there is no run in ./results", hint="run `torchscale benchmark` first")
    raise UsageError(f"no --source, and ./results holds {len(runs)} runs: {', '.join(run.name for run in runs[:10])}")
