"""``torchscale report``: a run folder as HTML, PDF, Markdown, CSV, JSON or a table."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from torchscale.cli.output import note, result_console, status
from torchscale.cli.rendering import render_document, write_rendered
from torchscale.errors import UsageError
from torchscale.garbage import no_collections

if TYPE_CHECKING:
    from torchscale.analysis.results import RunSummary
    from torchscale.report.document import Document
    from torchscale.schema.profile import ProfileAnalysis

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

    Works on partial results too; what is missing is said. Nothing in the run folder is changed but the report.

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
    host: Annotated[str, typer.Option("--host", help="Address to listen on. Others than loopback show it to all.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0 takes a free one.")] = 8642,
    cost: CostOption = None,
) -> None:
    """Show a run in the browser while it grows: the page follows as launches end. Ctrl-C ends it.

    [bold]Example[/bold]

    [cyan]torchscale report serve --source results/nightly[/cyan]
    """
    _check_price(cost)
    directory = source if source is not None else _only_run()
    from torchscale.serving import LivePage, make_server  # noqa: PLC0415 - `--help` does not need it
    from torchscale.store import RunFolder  # noqa: PLC0415

    RunFolder.open(directory)
    with make_server(LivePage(directory, cost), host, port) as server:
        address = f"[{host}]" if ":" in host else host
        note(f"Serving {directory} at http://{address}:{server.server_address[1]}/ (Ctrl-C ends it)")
        if host not in ("127.0.0.1", "localhost", "::1"):
            note("warning: whoever reaches this address can read the report; it asks for no password")
        server.serve_forever(poll_interval=0.2)


def _check_price(price: float | None) -> None:
    if price is not None and not 0 < price < float("inf"):
        raise UsageError(f"--cost {price:g}: expected a price above 0 of a device and hour, such as 2.50")


@no_collections()
def _write_reports(source: Path | None, formats: list[Format] | None, output: str | None, price: float | None) -> None:
    _check_price(price)
    chosen = list(dict.fromkeys(formats or [Format.HTML]))
    if output is not None and len(chosen) > 1:
        raise UsageError(
            f"--output {output} takes one --format, not {len(chosen)}",
            hint="leave --output out: each gets its own file",
        )
    directory = source if source is not None else _only_run()
    content = _read(directory, price)
    for kind in chosen:
        if kind is Format.TERMINAL:
            content.print_terminal()
        else:
            _write(kind, content, directory, output)


class _Content(Protocol):
    """What is reported: a run, or one recording."""

    def csv(self) -> str:
        """For spreadsheets."""
        ...

    def json(self) -> str:
        """For programs."""
        ...

    def document(self) -> Document:
        """For people."""
        ...

    def print_terminal(self) -> None:
        """For a quick look."""
        ...


def _read(directory: Path, price: float | None) -> _Content:
    from torchscale.reading import read_summary  # noqa: PLC0415 - `--help` does not need it
    from torchscale.store import load_profile  # noqa: PLC0415

    with status("Reading the run"):
        analysis = load_profile(directory)
        return _Run(read_summary(directory), directory, price) if analysis is None else _Recording(analysis, directory)


@dataclass(frozen=True)
class _Run:
    """A run folder."""

    summary: RunSummary
    directory: Path
    price: float | None

    def csv(self) -> str:
        from torchscale.report.export import summary_csv  # noqa: PLC0415 - `--help` does not need it

        return summary_csv(self.summary)

    def json(self) -> str:
        from torchscale.report.export import summary_json  # noqa: PLC0415 - `--help` does not need it

        return summary_json(self.summary)

    def document(self) -> Document:
        from torchscale.report.build import build_document  # noqa: PLC0415 - `--help` does not need it
        from torchscale.sources import read_details  # noqa: PLC0415

        details = read_details(self.directory, self.summary)
        return build_document(self.summary, details, price=self.price)

    def print_terminal(self) -> None:
        from torchscale.report.console import print_results  # noqa: PLC0415 - `--help` does not need it
        from torchscale.report.verdict import verdict  # noqa: PLC0415

        console = result_console()
        for paragraph in verdict(self.summary):
            console.print(paragraph, markup=False)
        print_results(self.summary, console)


@dataclass(frozen=True)
class _Recording:
    """A directory that `torchscale profile` wrote for a program of the user's."""

    analysis: ProfileAnalysis
    directory: Path

    def csv(self) -> str:
        raise UsageError(
            f"{self.directory} holds a recording, which has no rows for a spreadsheet", hint="use --format json"
        )

    def json(self) -> str:
        return self.analysis.model_dump_json(indent=1)

    def document(self) -> Document:
        from torchscale.report.bottlenecks import profile_document  # noqa: PLC0415 - `--help` does not need it

        return profile_document(self.analysis, self.directory.resolve().name)

    def print_terminal(self) -> None:
        from torchscale.report.profile_console import print_analysis  # noqa: PLC0415 - `--help` does not need it

        print_analysis(self.analysis, result_console())


def _write(kind: Format, content: _Content, directory: Path, output: str | None) -> None:
    with status(f"Writing {kind.value}"):
        rendered = _render(kind, content)
    write_rendered(rendered, f"report.{kind.value}", directory, output)


def _render(kind: Format, content: _Content) -> bytes:
    if kind is Format.CSV:
        return content.csv().encode()
    if kind is Format.JSON:
        return (content.json() + "\n").encode()
    return render_document(kind.value, content.document())


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
