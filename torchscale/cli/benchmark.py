"""``torchscale benchmark``: config → plan → sweep → a run folder and a table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.options import ConfigArgument, known_options
from torchscale.cli.output import TERMINAL, result_console
from torchscale.config.choices import Rerun

if TYPE_CHECKING:
    from torchscale.run.benchmark import BenchmarkOutcome, DryRun


def benchmark(
    context: typer.Context,
    config: ConfigArgument = None,
    config_option: Annotated[Path | None, typer.Option("--config", "-c", help="The same as the argument.")] = None,
    output_dir: Annotated[
        Path | None, typer.Option("--output-dir", "-o", help="Run folder. Default: results/<experiment_name>")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, one row a cell, and run nothing.")] = False,
    predict: Annotated[
        bool, typer.Option("--predict/--no-predict", help="With --dry-run: predict memory, for half a minute at most.")
    ] = True,
    rerun: Annotated[
        Rerun | None,
        typer.Option("--rerun", help="Measure again what failed, or all; earlier launches are set aside, not deleted."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan or the results as JSON.")] = False,
) -> None:
    """Measure how training scales: models × batch sizes × GPU counts, each cell a torchrun.

    Any key of the config can be overridden: [bold]--training.precision=bf16 --batch_sizes=\\[32,64][/bold].
    The same command resumes an interrupted sweep: completed launches are kept.

    Exit codes: 0 all cells ok or skipped; 1 some failed; 2 wrong input; 3 this machine can run none; 130 interrupted.

    [bold]Examples[/bold]

    [cyan]torchscale benchmark --dry-run[/cyan]

    [cyan]torchscale benchmark my_matrix.yaml --gpu_counts=\\[1,2,4,8] --benchmark.repeats=3[/cyan]

    [cyan]torchscale benchmark my_matrix.yaml --rerun failed[/cyan]
    """
    from torchscale.config.arguments import load_from_arguments  # noqa: PLC0415 - `--help` does not need it
    from torchscale.run import benchmark as run  # noqa: PLC0415

    arguments = [*([config] if config is not None else []), *context.args]
    experiment = load_from_arguments(arguments, named=config_option, known_options=known_options(context))
    if dry_run:
        _show_plan(run.dry_run(experiment, output_dir=output_dir, predict=predict, observer=TERMINAL), as_json=as_json)
        return
    outcome = run.benchmark(experiment, output_dir=output_dir, rerun=rerun, observer=TERMINAL)
    _show_results(outcome, as_json=as_json)
    raise typer.Exit(outcome.exit_code)


def _show_plan(result: DryRun, *, as_json: bool) -> None:
    from torchscale.report.formats.plan_export import plan_json  # noqa: PLC0415 - `--help` does not need it
    from torchscale.report.terminal.plan import print_plan  # noqa: PLC0415

    if as_json:
        typer.echo(plan_json(result.planned.plan, result.forecast))
        return
    print_plan(
        result.planned.plan,
        result_console(),
        device_label=result.planned.device_label,
        folder=result.directory,
        settings=result.planned.experiment.benchmark,
        forecast=result.forecast,
    )


def _show_results(outcome: BenchmarkOutcome, *, as_json: bool) -> None:
    from torchscale.report.formats.report_export import summary_json  # noqa: PLC0415 - `--help` does not need it
    from torchscale.report.terminal.run import print_results  # noqa: PLC0415

    if as_json:
        typer.echo(summary_json(outcome.summary))
        return
    print_results(outcome.summary, result_console())
    TERMINAL.results(outcome.directory)
