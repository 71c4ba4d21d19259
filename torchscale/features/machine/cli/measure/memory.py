"""``torchscale measure memory``: what a training step takes of a device's memory, and what fits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.copying import CopyOption, with_copy
from torchscale.cli.options import JsonOption, OutputOption, config_values, known_options
from torchscale.cli.output import TERMINAL, print_json, result_console
from torchscale.cli.parameters import option
from torchscale.cli.sweep_output import SWEEP_TERMINAL
from torchscale.cli.workload import (
    BatchOption,
    CountOption,
    DeviceOption,
    ModelOption,
    OptimizerOption,
    PrecisionOption,
    StrategyOption,
    WorkloadOptions,
)

if TYPE_CHECKING:
    from torchscale.config.experiment import Experiment


DEFAULT_MODELS = ["resnet18"]
"""Measured where no model is named: small enough for any device, as ``profile`` has it."""


def memory(
    context: typer.Context,
    models: ModelOption = None,
    batch_sizes: BatchOption = None,
    precisions: PrecisionOption = None,
    optimizers: OptimizerOption = None,
    strategies: StrategyOption = None,
    limit: Annotated[
        str | None,
        option("--limit BYTES", "Bytes that a device may take: 8GiB. Above it is out of memory."),
    ] = None,
    find_max_batch: Annotated[
        bool,
        option("--find-max-batch", "Find the largest batch size that fits, from --batch-size up."),
    ] = False,
    largest: Annotated[
        int, option("--largest", "No batch size above this is tried.", min=1)
    ] = 65536,
    gpus: CountOption = None,
    device: DeviceOption = None,
    output_dir: OutputOption = None,
    copy_to: CopyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what a step takes: parameters, gradients, optimizer states, activations, and the
    allocator's peak.

    Each measured peak is shown with the peak predicted without running (torch's memory tracker
    under fake tensors) and its error. Any key of a config can be given as well:
    [bold]--training.activation_checkpointing=full[/bold].

    With [bold]--find-max-batch[/bold] batch sizes double until one runs out of memory and are
    bisected from there, each in a launch of its own. On a CPU that needs --limit.

    Exit codes: 0 all well; 1 a cell ran out of memory or failed, or no batch fits; 2 wrong input; 3
    this machine cannot.

    [bold]Examples[/bold]

    [cyan]torchscale measure memory --model bert-large --batch-size 8 --precision fp32,bf16[/cyan]

    [cyan]torchscale measure memory --model gpt2 --find-max-batch --gpus 1[/cyan]

    [cyan]torchscale measure memory --model resnet50 --find-max-batch --device cpu --limit
    4GiB[/cyan]
    """
    from torchscale.config.arguments import load_from_options  # noqa: PLC0415 - `--help` does not need it

    workload = WorkloadOptions(
        models=models or DEFAULT_MODELS,
        batch_sizes=batch_sizes or (["1"] if find_max_batch else ["8"]),
        gpus=gpus,
        precisions=precisions,
        strategies=strategies,
        optimizers=optimizers,
        device=device,
    )
    values = config_values(
        context,
        {"measure": ["memory"], "launch.isolation": "group", "gpu_counts": [1]},
        {
            **workload.values(context),
            "--limit": ("memory.limit", limit),
            "--copy-to": ("export.storage", copy_to),
        },
    )
    if not models:
        TERMINAL.note(f"No --model: measuring {DEFAULT_MODELS[0]}")
    experiment = load_from_options(
        "measure memory", values, context.args, known_options=known_options(context)
    )
    if find_max_batch:
        _find_max_batch(experiment, output_dir, largest, copy_to, as_json=as_json)
    _measure(experiment, output_dir, as_json=as_json)


def _measure(experiment: Experiment, output_dir: Path | None, *, as_json: bool) -> None:
    from torchscale.features.machine.measure import measure_memory  # noqa: PLC0415
    from torchscale.report.formats.machine_export import ceilings_json  # noqa: PLC0415 - `--help` does not need it
    from torchscale.report.terminal.run import print_run  # noqa: PLC0415

    outcome = measure_memory(experiment, output_dir=output_dir, observer=SWEEP_TERMINAL)
    if as_json:
        print_json(ceilings_json(outcome.cells))
    else:
        print_run(outcome.run, outcome.directory, result_console())
        TERMINAL.results(outcome.directory)
    raise typer.Exit(outcome.exit_code)


def _find_max_batch(
    experiment: Experiment,
    output_dir: Path | None,
    largest: int,
    copy_to: str | None,
    *,
    as_json: bool,
) -> None:
    from torchscale.features.machine import max_batch  # noqa: PLC0415 - `--help` does not need it
    from torchscale.features.machine.max_batch_table import print_max_batch, trial_line  # noqa: PLC0415

    outcome = max_batch.find_max_batch(
        experiment,
        output_dir=output_dir,
        largest=largest,
        observer=TERMINAL,
        on_trial=lambda trial: TERMINAL.note(trial_line(trial.cell, trial.record)),
    )
    if as_json and not outcome.interrupted:
        print_json(outcome.to_json())
    elif not outcome.interrupted:
        console = result_console()
        print_max_batch(
            outcome.batch_size, outcome.model, console, problem=outcome.problem, largest=largest
        )
        TERMINAL.results(outcome.directory)
    raise typer.Exit(with_copy(outcome.exit_code, outcome.directory, copy_to))
