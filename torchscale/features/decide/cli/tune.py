"""``torchscale tune``: the fastest setting of a config on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.command import same_command
from torchscale.cli.options import (
    ConfigArgument,
    Several,
    config_arguments,
    config_values,
    known_options,
)
from torchscale.cli.output import TERMINAL, print_json, result_console
from torchscale.cli.parameters import option
from torchscale.cli.parsing import members, parse_seconds
from torchscale.cli.workload import WorkloadOptions
from torchscale.config.choices import TuningAxis
from torchscale.errors import UsageError

if TYPE_CHECKING:
    from torchscale.features.decide.tune.outcome import TuneOutcome


def tune(
    context: typer.Context,
    config: ConfigArgument = None,
    search: Annotated[
        Several,
        option(
            "--search --axis AXIS,…",
            "Default: all allowed of "
            f"{', '.join(axis.value for axis in TuningAxis if axis is not TuningAxis.STRATEGY)}. "
            "By name only: strategy",
        ),
    ] = None,
    budget: Annotated[str, option("--budget TIME", "Wall time of new launches.")] = "10m",
    allow_numerics: Annotated[
        bool,
        option("--allow-numerics", "Also try what changes results: precision, comm_hook, batch."),
    ] = False,
    launch_seconds: Annotated[
        str, option("--launch-seconds TIME", "Measured in each launch.")
    ] = "2s",
    *,
    workload: WorkloadOptions,
    output: Annotated[
        Path, option("--output -o FILE", "The winning config, written if one is verified.")
    ] = Path("tuned.yaml"),
    output_dir: Annotated[
        Path | None,
        option("--output-dir DIR", "Run folder. Default: results/tune-<experiment_name>"),
    ] = None,
    as_json: Annotated[bool, option("--json", "Print the result as JSON.")] = False,
) -> None:
    """Find the fastest setting of one config on this machine, and verify it.

    Every change runs once by itself in a short launch. From all launches so far follows what each
    combination may give; the most promising ones are launched until little more is expected. The
    winner is then measured against the config in launches by turns. Settings that fail or run out
    of memory are rows of the table. Global samples per second decide.

    [bold]--search strategy[/bold] compares every strategy that the model and the number of devices
    allow: DDP, ZeRO-1, FSDP2, tensor, sequence, pipeline, expert and context parallelism and their
    products, at the same global batch. What is predicted not to fit in memory is not launched.

    Settings that change what is computed need [bold]--allow-numerics[/bold]. The same command
    continues a search that was interrupted or ran out of its budget, with a new budget. "Nothing
    better found" is an answer: exit code 0.

    Exit codes: 0 done; 1 the config itself failed; 2 wrong input; 3 the budget had no room for an
    answer, or this machine cannot run it; 130 interrupted.

    [bold]Examples[/bold]

    [cyan]torchscale tune --model resnet50 --batch-size 64 --gpus 1[/cyan]

    [cyan]torchscale tune my.yaml --gpus 8 --search compile,fused,bucket --budget 20m[/cyan]

    [cyan]torchscale tune my.yaml --gpus 8 --search strategy --budget 30m[/cyan]

    [cyan]torchscale tune my.yaml --gpus 8 --allow-numerics -o fastest.yaml --json[/cyan]
    """
    from torchscale.config.arguments import load_from_arguments  # noqa: PLC0415 - `--help` does not need it
    from torchscale.features.decide.tune import run  # noqa: PLC0415

    options = run.TuneOptions(
        axes=tuple(members("--search", search, TuningAxis)) or None,
        budget_seconds=parse_seconds("--budget", budget),
        allow_numerics=allow_numerics,
        launch_seconds=parse_seconds("--launch-seconds", launch_seconds),
    )
    if config is not None and output.exists() and Path(config).exists() and output.samefile(config):
        raise UsageError(
            f"--output {output}: is the config to start from",
            hint="name another file: -o faster.yaml",
        )
    named = load_from_arguments(
        config_arguments(context, config),
        known_options=known_options(context),
        values=config_values(context, {}, workload.values(context)),
    )
    TERMINAL.note(named.source)
    outcome = run.tune(
        named.experiment,
        options,
        config=output,
        output_dir=output_dir,
        observer=TERMINAL,
        on_launch=TERMINAL.note,
    )
    _show(outcome, as_json=as_json)
    if outcome.interrupted:
        TERMINAL.note(
            f"Interrupted. The same command continues: {same_command(context, without=('--json',))}"
        )
    raise typer.Exit(outcome.exit_code)


def _show(outcome: TuneOutcome, *, as_json: bool) -> None:
    from torchscale.features.decide.tune.tables import print_tuning  # noqa: PLC0415 - `--help` does not need it

    if as_json:
        print_json(outcome.export().model_dump_json(indent=1))
    else:
        print_tuning(outcome.export(), outcome.title, result_console())
    for note in outcome.notes:
        TERMINAL.note(f"note: {note}")
    TERMINAL.results(outcome.directory)
