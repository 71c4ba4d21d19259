"""``torchscale benchmark``: config → plan → sweep → a run folder and a table."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.command import same_command
from torchscale.cli.copying import CopyOption
from torchscale.cli.options import (
    ConfigArgument,
    NodeArguments,
    config_arguments,
    config_values,
    known_options,
)
from torchscale.cli.output import TERMINAL, print_json, result_console
from torchscale.cli.parameters import option
from torchscale.cli.sweep_output import SWEEP_TERMINAL
from torchscale.cli.workload import WorkloadOptions
from torchscale.config.choices import Rerun
from torchscale.door import Slot
from torchscale.errors import UsageError
from torchscale.measure.nodes import NodeOptions

if TYPE_CHECKING:
    from torchscale.config.experiment import Experiment
    from torchscale.measure.benchmark import BenchmarkOutcome
    from torchscale.measure.dry_run import DryRun

_NOTES: Slot[Callable[[Path], str]] = Slot("sweep notes")
"""Name → what a feature says of a run folder when its sweep has ended; perhaps nothing."""


def benchmark(
    context: typer.Context,
    config: ConfigArgument = None,
    config_option: Annotated[
        Path | None, option("--config -c FILE", "The same as the argument.")
    ] = None,
    *,
    workload: WorkloadOptions,
    output_dir: Annotated[
        Path | None, option("--output-dir -o DIR", "Run folder. Default: results/<experiment_name>")
    ] = None,
    dry_run: Annotated[
        bool, option("--dry-run", "Show the plan, one row a cell, and run nothing.")
    ] = False,
    show_config: Annotated[
        bool,
        option(
            "--show-config",
            "Print the config with every default, after options and overrides; run nothing.",
        ),
    ] = False,
    hardware: Annotated[
        str | None,
        option(
            "--hardware NAME", "With --dry-run: plan for this machine instead: 8xh100, 4xa100, …"
        ),
    ] = None,
    predict: Annotated[
        bool,
        option(
            "--predict/--no-predict", "With --dry-run: predict memory, for half a minute at most."
        ),
    ] = True,
    rerun: Annotated[
        Rerun | None,
        option(
            "--rerun", "Measure again what failed, or all; earlier launches move to quarantine/."
        ),
    ] = None,
    copy_to: CopyOption = None,
    nodes: NodeArguments,
    as_json: Annotated[
        bool, option("--json", "Print the config, the plan or the results as JSON.")
    ] = False,
) -> None:
    """Measure how training scales: models × batch sizes × GPU counts.

    torchrun's agent starts and watches the ranks of every launch: by a torchrun command or, on CPUs
    by default, in a fork of one process that has imported PyTorch. [bold]--verbose[/bold] shows
    each.

    With a config file, options and [bold]--key.sub=value[/bold] change single keys of it. With
    [bold]--model[/bold] and without a file, the options are the whole config. The same command
    resumes an interrupted sweep: completed launches are kept.

    Over several nodes: in a job of Slurm or on a Ray cluster ([bold]--engine[/bold]) one command
    does it. Elsewhere, start the same command on each node with its [bold]--node-rank[/bold]; all
    share a secret (TORCHSCALE_TOKEN or --token-file). See `torchscale docs nodes`.

    Exit codes: 0 all cells ok or skipped; 1 some, or the copy, failed; 2 wrong input; 3 this machine
    can run none; 130 interrupted.

    [bold]Examples[/bold]

    [cyan]torchscale benchmark --dry-run[/cyan]

    [cyan]torchscale benchmark --model resnet50 --batch-size 64 --gpus 1,2,4[/cyan]

    [cyan]torchscale benchmark my_matrix.yaml --gpus 1,2,4,8 --benchmark.repeats=3[/cyan]

    [cyan]torchscale benchmark h100.yaml --dry-run --hardware 8xh100[/cyan]

    [cyan]torchscale benchmark my_matrix.yaml --training.precision=bf16 --show-config[/cyan]

    [cyan]torchscale benchmark my_matrix.yaml --rerun failed[/cyan]

    [cyan]torchscale benchmark my_matrix.yaml --engine slurm --nnodes 4[/cyan]

    [cyan]torchscale benchmark my_matrix.yaml --nnodes 2 --node-rank 0 --master
    10.0.0.1:29500 --token-file token[/cyan]
    """
    from torchscale.config.arguments import load_from_arguments  # noqa: PLC0415 - `--help` does not need it
    from torchscale.measure.detection import start_detection  # noqa: PLC0415

    if hardware is not None and not dry_run:
        raise UsageError(
            f"--hardware {hardware} is for --dry-run: without it, this machine is measured",
            hint="add --dry-run, or leave --hardware out",
        )
    options = workload.values(context) | {
        "--nnodes": ("launch.nodes", nodes.nodes),
        "--copy-to": ("export.storage", copy_to),
    }
    named = load_from_arguments(
        config_arguments(context, config),
        named=config_option,
        known_options=known_options(context),
        values=config_values(context, {}, options),
    )
    TERMINAL.note(named.source)
    if show_config:
        _show_config(named.experiment, as_json=as_json)
        return
    # Devices are detected in a process of its own, and PyTorch is imported in the one that starts
    # launches on CPUs, while the modules that follow are imported here.
    detection = context.with_resource(start_detection()) if hardware is None else None
    ahead = None
    if not dry_run and nodes.nodes is None:
        from torchscale.measure.early_start import started_ahead  # noqa: PLC0415

        ahead = context.with_resource(started_ahead(named.experiment, output_dir))
    from torchscale.measure import benchmark as run  # noqa: PLC0415
    from torchscale.measure.context import plan_run  # noqa: PLC0415
    from torchscale.measure.nodes import describe_nodes, join_nodes  # noqa: PLC0415

    if dry_run:
        from torchscale.measure.dry_run import dry_run as plan_only  # noqa: PLC0415

        experiment = describe_nodes(named.experiment, NodeOptions(**vars(nodes)), TERMINAL)
        result = plan_only(
            experiment,
            output_dir=output_dir,
            hardware=hardware,
            predict=predict,
            rerun=rerun,
            observer=TERMINAL,
            detection=detection,
        )
        _show_plan(result, as_json=as_json)
        return
    experiment, node = join_nodes(named.experiment, NodeOptions(**vars(nodes)), TERMINAL)
    if node is not None and ahead is not None:
        ahead.close()  # nodes of a cluster run launches together
        ahead = None
    if node is not None and node.detection is not None and detection is not None:
        detection.close()  # a node of an engine is examined in the place of this machine
        detection = None
    if node is not None and not node.is_leader:
        raise typer.Exit(node.follow(experiment, TERMINAL, partial(plan_run, detection=detection)))
    outcome = run.benchmark(
        experiment,
        output_dir=output_dir,
        rerun=rerun,
        observer=SWEEP_TERMINAL,
        node=node,
        detection=detection,
        ahead=ahead,
    )
    _show_results(outcome, same_command(context, without=("--rerun", "--json")), as_json=as_json)
    raise typer.Exit(outcome.exit_code)


def _show_config(experiment: Experiment, *, as_json: bool) -> None:
    from torchscale.config.dump import to_json, to_yaml  # noqa: PLC0415 - a run does not need it

    if as_json:
        print_json(to_json(experiment))
    else:
        typer.echo(to_yaml(experiment), nl=False)


def _show_plan(result: DryRun, *, as_json: bool) -> None:
    from torchscale.report.formats.plan_export import plan_json  # noqa: PLC0415 - `--help` does not need it
    from torchscale.report.terminal.plan import print_plan  # noqa: PLC0415

    if as_json:
        print_json(
            plan_json(result.planned.plan, result.forecast, result.progress, result.estimate)
        )
    else:
        print_plan(
            result.planned.plan,
            result_console(),
            device_label=result.planned.device_label,
            folder=result.directory,
            forecast=result.forecast,
            progress=result.progress,
            estimate=result.estimate,
        )
    for text in result.notes:
        TERMINAL.note(f"warning: {text}")
    result.refuse()


def _note_what_features_say(outcome: BenchmarkOutcome) -> None:
    for name in _NOTES:
        text = _NOTES[name](outcome.directory)
        if text:
            TERMINAL.note(text)


def _show_results(outcome: BenchmarkOutcome, same_command: str, *, as_json: bool) -> None:
    from torchscale.report.formats.report_export import summary_json  # noqa: PLC0415 - `--help` does not need it
    from torchscale.report.terminal.run import print_run  # noqa: PLC0415

    if as_json:
        print_json(summary_json(outcome.summary))
    else:
        print_run(outcome.summary, outcome.directory, result_console())
    if not outcome.interrupted:
        _note_what_features_say(outcome)
    TERMINAL.results(outcome.directory)
    if outcome.interrupted:
        TERMINAL.note(f"Interrupted. The same command continues: {same_command}")
    elif outcome.has_failed:
        TERMINAL.note(f"To measure what failed again: {same_command} --rerun failed")
