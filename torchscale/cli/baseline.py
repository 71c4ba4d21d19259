"""``torchscale baseline``: results kept under a name, in files that can be committed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.output import TERMINAL, note, result_console

BaselinesOption = Annotated[Path, typer.Option("--baselines", help="Where baselines are kept.")]

app = typer.Typer(no_args_is_help=True, help="Keep results under a name, to compare with later.")


@app.command("save")
def save(
    name: Annotated[str, typer.Argument(help="Letters, digits, dots, dashes and underscores.")],
    source: Annotated[str, typer.Option("--source", "-s", help="Results directory, or a record.json.")],
    baselines: BaselinesOption = Path("baselines"),
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite a baseline of that name.")] = False,
) -> None:
    """Keep what a comparison needs of some results: every launch's figures, the config, the machine. One JSON file.

    [bold]Example[/bold]

    [cyan]torchscale baseline save main --source results/nightly && git add baselines/main.json[/cyan]
    """
    from torchscale.run import baselines as run  # noqa: PLC0415 - `--help` does not need it

    saved = run.save(name, source, baselines=baselines, replace=replace, observer=TERMINAL)
    note(f"Wrote {saved.path} ({saved.measured_cells} of {len(saved.results.cells)} cells measured)")


@app.command("list")
def list_all(
    baselines: BaselinesOption = Path("baselines"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """Every baseline with what it holds; one that cannot be read is named as such."""
    from torchscale.report.terminal.baselines import baselines_json, print_baselines  # noqa: PLC0415 - not for `--help`
    from torchscale.run.baselines import baseline_rows  # noqa: PLC0415

    rows = baseline_rows(baselines)
    if as_json:
        typer.echo(baselines_json(rows))
    elif rows:
        print_baselines(rows, result_console())
    else:
        note(f"No baselines in {baselines}; keep one with `torchscale baseline save NAME --source results/...`")


@app.command("show")
def show(
    name: Annotated[str, typer.Argument(help="Name of the baseline.")],
    baselines: BaselinesOption = Path("baselines"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole file.")] = False,
) -> None:
    """What a baseline holds: where and when it was measured, each cell with its launches."""
    from torchscale.report.terminal.comparison import print_result_set  # noqa: PLC0415 - `--help` does not need it
    from torchscale.run.baselines import read  # noqa: PLC0415

    results = read(name, baselines)
    if as_json:
        typer.echo(results.model_dump_json(indent=1))
    else:
        print_result_set(results, result_console())
