"""``torchscale memory``: what a training step takes of a device's memory, measured and predicted, and what fits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.benchmark import experiment_file, stop_on_signals
from torchscale.cli.machine_cells import (
    CountOption,
    DeviceOption,
    JsonOption,
    OutputOption,
    default_folder,
    exit_code,
    experiment_of,
    listed,
    look,
    measure,
    of_plan,
    override,
    planned,
    show,
)
from torchscale.cli.output import note, result_console, status
from torchscale.errors import ExitCode, MachineError, UsageError

if TYPE_CHECKING:
    from torchscale.plan import Plan
    from torchscale.schema.config import Experiment
    from torchscale.schema.machine import Machine
    from torchscale.searching import Search, Trial

Several = list[str] | None


def memory(
    context: typer.Context,
    models: Annotated[
        Several, typer.Option("--model", "-m", help="A model of `torchscale list models`, or an import path; several.")
    ] = None,
    batch_sizes: Annotated[
        list[int] | None, typer.Option("--batch-size", "-b", min=1, help="Samples per device; several. Default: 8")
    ] = None,
    precisions: Annotated[Several, typer.Option("--precision", help="fp32, tf32, fp16, bf16, fp8; several.")] = None,
    optimizers: Annotated[Several, typer.Option("--optimizer", help="sgd, adam, adamw; several.")] = None,
    strategies: Annotated[
        Several, typer.Option("--strategy", help="none, ddp, zero1, fsdp, tensor …; several. Default: ddp")
    ] = None,
    limit: Annotated[
        str | None, typer.Option("--limit", help="Bytes that a device may take: 8GiB. Above it is out of memory.")
    ] = None,
    find_max_batch: Annotated[
        bool, typer.Option("--find-max-batch", help="Find the largest batch size that fits, from --batch-size up.")
    ] = False,
    largest: Annotated[int, typer.Option("--largest", min=1, help="Nothing above this batch size is tried.")] = 65536,
    gpus: CountOption = 1,
    device: DeviceOption = None,
    output_dir: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure what a step takes: parameters, gradients, optimizer states, activations, and the allocator's peak.

    Beside each measured peak stands the one predicted without running (torch's memory tracker under fake tensors) with
    its error. Any key of a config can be given as well: [bold]--training.activation_checkpointing=full[/bold].

    With [bold]--find-max-batch[/bold] batch sizes double until one runs out of memory and are bisected from there,
    each in a launch of its own. On a CPU that needs --limit.

    Exit codes: 0 all well; 1 a cell ran out of memory or failed, or no batch fits; 2 wrong input; 3 this machine
    cannot.

    [bold]Examples[/bold]

    [cyan]torchscale memory --model bert-large --batch-size 8 --precision fp32,bf16[/cyan]

    [cyan]torchscale memory --model gpt2 --find-max-batch --gpus 1[/cyan]

    [cyan]torchscale memory --model resnet50 --find-max-batch --device cpu --limit 4GiB[/cyan]
    """
    if not models:
        raise UsageError("no --model is given", hint="see `torchscale list models`")
    start = batch_sizes or ([1] if find_max_batch else [8])
    asked = experiment_of(
        context,
        "memory",
        [
            "--measure=[memory]",
            "--launch.isolation=group",
            *override("models", [f"'{name}'" for name in listed(models)]),
            *override("batch_sizes", start),
            *override("training.precision", listed(precisions or [])),
            *override("training.optimizer", listed(optimizers or [])),
            *override("parallel.strategy", listed(strategies or [])),
            *override("memory.limit", limit),
            *override("gpu_counts", [gpus] if gpus else None),
            *override("device", device),
        ],
    )
    machine = look()
    path = output_dir or default_folder("memory")
    experiment, plan = planned(asked, machine, path)
    if find_max_batch:
        raise typer.Exit(_search(experiment, plan, machine, path, largest=largest, as_json=as_json))
    summary, stop = measure(experiment, plan, machine, path)
    found = of_plan(summary.memory, plan)
    from torchscale.report.ceiling_console import print_memory  # noqa: PLC0415 - `--help` does not need it

    show(found, path, print_memory, as_json=as_json)
    raise typer.Exit(exit_code(found, stop))


def _search(
    experiment: Experiment, plan: Plan, machine: Machine, path: Path, *, largest: int, as_json: bool
) -> ExitCode:
    """Find the largest batch of the plan's one setting and say it."""
    from torchscale.launch.process import adopt_orphans  # noqa: PLC0415 - `--help` does not need it
    from torchscale.schema.memory import MemoryCell  # noqa: PLC0415
    from torchscale.searching import find_max_batch, search_json  # noqa: PLC0415
    from torchscale.store import RunFolder, locked_folder  # noqa: PLC0415

    cells = [cell for cell in plan.to_run if isinstance(cell, MemoryCell)]
    if len(cells) > 1:
        raise UsageError(
            f"--find-max-batch takes one setting, not {len(cells)}", hint="give one --model, --precision, --optimizer …"
        )
    if plan.device == "cpu" and experiment.memory.limit is None:
        raise MachineError(
            "--find-max-batch on a CPU needs a --limit: a host that runs out of memory takes others with it",
            hint="for example --limit 4GiB",
        )
    adopt_orphans()
    file = experiment_file(experiment, plan, machine)
    with locked_folder(path), stop_on_signals() as stop:
        folder = RunFolder.join(path, file.model_copy(update={"plan": ()}))
        with status("Trying batch sizes"):
            search = find_max_batch(
                experiment,
                plan,
                file,
                folder,
                stop,
                cell=cells[0],
                largest=largest,
                on_progress=lambda _: None,
                on_trial=_say_trial,
            )
    if stop.asked:
        return ExitCode.INTERRUPTED
    if as_json:
        typer.echo(search_json(search))
    else:
        _say_found(search, cells[0].training.model, largest)
        note(f"Results: {path}. Next: torchscale report --source {path}")
    return ExitCode.OK if search.batch_size is not None else ExitCode.FAILED


def _say_trial(trial: Trial) -> None:
    from torchscale.schema.record import State  # noqa: PLC0415 - `--help` does not need it
    from torchscale.units import format_bytes  # noqa: PLC0415

    record = trial.record
    fits = record.state is State.OK
    words = f"{record.state.value}: {record.reason}"
    if fits:
        words = f"fits, {format_bytes(max(rank.peak_bytes for rank in record.memory))} at its peak"
    note(f"batch {trial.cell.training.batch_size}: {words}")


def _say_found(search: Search, model: str, largest: int) -> None:
    console = result_console()
    if search.batch_size is not None:
        more = " (nothing larger was tried)" if search.batch_size == largest else ""
        console.print(f"The largest batch of {model} that fits is {search.batch_size}{more}.", markup=False)
    elif search.problem:
        console.print(f"The search was cut short: {search.problem}", markup=False, soft_wrap=True)
    else:
        console.print(f"No batch of {model} fits.", markup=False)
