"""What ``comm``, ``hardware`` and ``memory`` share: from options to cells of the usual pipeline and their folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from torchscale.cli.benchmark import RESULTS, device_words, experiment_file, stop_on_signals
from torchscale.cli.output import detail, note, result_console, status
from torchscale.errors import ExitCode, MachineError, UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from torchscale.analysis.ceilings import CeilingSummary
    from torchscale.analysis.results import RunSummary
    from torchscale.launch.torchrun import StopRequest
    from torchscale.plan import Plan
    from torchscale.schema.config import Experiment
    from torchscale.schema.machine import Machine

S = TypeVar("S", bound="CeilingSummary")

CountOption = Annotated[
    int | None, typer.Option("--gpus", "-n", min=1, help="Devices, or ranks on CPU. Default: all.", show_default=False)
]
DeviceOption = Annotated[str | None, typer.Option("--device", help="cuda, cpu, or auto: CUDA where torch sees it.")]
OutputOption = Annotated[
    Path | None,
    typer.Option("--output-dir", "-o", help="Run folder, new or to be joined. Default: results/<command>-<time>"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the results as JSON.")]


def listed(values: Iterable[str]) -> list[str]:
    """Every value of an option that may be given several times, or once with commas: ``--algo Ring,Tree``."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def override(key: str, value: object) -> list[str]:
    """An override of a config key, or none for a value that was not given."""
    if value is None or value in ([], ()):
        return []
    text = f"[{','.join(map(str, value))}]" if isinstance(value, list | tuple) else str(value)
    return [f"--{key}={text}"]


def experiment_of(context: typer.Context, name: str, overrides: Sequence[str]) -> Experiment:
    """The experiment that a command's options describe, with any further ``--key.sub=value`` on the command line.

    Raises:
        UsageError: an argument is neither an option nor an override.
        ConfigError: a value is wrong.
    """
    from torchscale.schema.loading import load_experiment  # noqa: PLC0415 - `--help` does not need it
    from torchscale.schema.overrides import split_arguments  # noqa: PLC0415

    plain, further = split_arguments(list(context.args))
    if plain:
        raise UsageError(f"{plain[0]!r} is not understood", hint=f"see `torchscale {name} --help`")
    known = [option for parameter in context.command.params for option in parameter.opts if option.startswith("--")]
    return load_experiment(None, [f"--experiment_name={name}", *overrides, *further], known_options=known)


def planned(experiment: Experiment, machine: Machine, path: Path) -> tuple[Experiment, Plan]:
    """The plan; where no count was asked for, at the largest that this machine has. Cells that join a folder run with
    as many threads as what it holds, so that a device means the same.

    Raises:
        MachineError: it can run nothing of it.
        StoreError: ``path`` holds something that cannot be read.
    """
    from torchscale.plan import make_plan  # noqa: PLC0415 - `--help` does not need it
    from torchscale.store import RunFolder  # noqa: PLC0415

    if (path / "experiment.json").exists() and experiment.launch.threads_per_rank is None:
        threads = RunFolder.open(path).experiment.threads_per_rank
        launch = experiment.launch.model_copy(update={"threads_per_rank": threads})
        experiment = experiment.model_copy(update={"launch": launch})
    plan = make_plan(experiment, machine)
    if experiment.gpu_counts == "auto" and plan.to_run:
        largest = max(cell.world_size for cell in plan.to_run)
        experiment = experiment.model_copy(update={"gpu_counts": (largest,)})
        plan = make_plan(experiment, machine)
    if not plan.to_run:
        raise MachineError(plan.cells[0].skip_reason or "nothing to measure")
    return experiment, plan


def look() -> Machine:
    """The machine at hand, with a word while it takes a moment."""
    from torchscale.launch.machine import detect_machine  # noqa: PLC0415 - `--help` does not need it

    with status("Looking at this machine"):
        return detect_machine()


def default_folder(name: str) -> Path:
    """A folder of its own for every run of a command."""
    return RESULTS / f"{name}-{datetime.now():%Y%m%d-%H%M%S}"


def measure(experiment: Experiment, plan: Plan, machine: Machine, path: Path) -> tuple[RunSummary, StopRequest]:
    """Measure the plan's cells anew into a folder, which keeps what else it holds; what was there of the same cells is
    set aside."""
    from torchscale.cli.live import make_listener  # noqa: PLC0415 - `--help` does not need it
    from torchscale.launch.process import adopt_orphans  # noqa: PLC0415
    from torchscale.store import RunFolder, locked_folder  # noqa: PLC0415
    from torchscale.sweep import Rerun, Sweep  # noqa: PLC0415

    adopt_orphans()
    with locked_folder(path), stop_on_signals() as stop:
        folder = RunFolder.join(path, experiment_file(experiment, plan, machine))
        sweep = Sweep(experiment, plan, folder)
        pending = sweep.prepare(Rerun.ALL)
        detail(f"run folder: {path}")
        note(f"{experiment.experiment_name}: on {device_words(plan, machine)}")
        with make_listener(plan.device, len(pending), experiment.benchmark.repeats) as listener:
            return sweep.run(pending, listener, stop), stop


def of_plan(summaries: Iterable[S], plan: Plan) -> list[S]:
    """Those of the cells that were just measured."""
    ids = {entry.cell.id for entry in plan.cells}
    return [summary for summary in summaries if summary.cell.id in ids]


def show(found: Sequence[S], path: Path, printed: Callable[[Sequence[S], Console], None], *, as_json: bool) -> None:
    """The cells that were just measured, as JSON or as ``printed`` prints them."""
    if as_json:
        from torchscale.report.ceiling_export import ceilings_json  # noqa: PLC0415 - `--help` does not need it

        typer.echo(ceilings_json(found))
        return
    printed(found, result_console())
    note(f"Results: {path}. Next: torchscale report --source {path}")


def exit_code(summaries: Iterable[CeilingSummary], stop: StopRequest) -> ExitCode:
    """As of a sweep."""
    from torchscale.schema.record import State  # noqa: PLC0415 - `--help` does not need it

    if stop.asked:
        return ExitCode.INTERRUPTED
    fine = all(summary.state in (State.OK, State.SKIPPED) for summary in summaries)
    return ExitCode.OK if fine else ExitCode.FAILED
