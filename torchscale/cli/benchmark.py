"""``torchscale benchmark``: config → plan → sweep → a run folder and a table."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.output import detail, note, result_console, status
from torchscale.errors import ExitCode, MachineError, UsageError

if TYPE_CHECKING:
    from types import FrameType

    from torchscale.analysis.results import RunSummary
    from torchscale.cli.plan_view import Forecast
    from torchscale.launch.torchrun import StopRequest
    from torchscale.plan import Plan
    from torchscale.profiling import CellProfiler
    from torchscale.schema.config import Experiment
    from torchscale.schema.experiment import ExperimentFile
    from torchscale.schema.machine import Machine

DEFAULT_CONFIG = Path("benchmark_config.yaml")
RESULTS = Path("results")
_PREDICTION_SECONDS = 30.0
"""What predicting memory may take of a dry run; cells that it does not reach have no prediction."""
CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""Leftover arguments are overrides of config keys: ``--training.precision=bf16``."""


ConfigArgument = Annotated[
    str | None, typer.Argument(metavar="CONFIG", help="Config file, YAML or JSON. Default: ./benchmark_config.yaml")
]


class RerunChoice(str, Enum):
    """Values of ``--rerun``."""

    FAILED = "failed"
    ALL = "all"


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
        RerunChoice | None,
        typer.Option("--rerun", help="Measure again what failed, or all; what was there is set aside, not deleted."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan or the results as JSON.")] = False,
) -> None:
    """Measure how training scales: models × batch sizes × GPU counts, each cell a torchrun.

    Any key of the config can be overridden: [bold]--training.precision=bf16 --batch_sizes=\\[32,64][/bold].
    The same command goes on where it stopped: launches that are done are kept.

    Exit codes: 0 all cells ok or skipped; 1 some failed; 2 wrong input; 3 this machine can run none; 130 interrupted.

    [bold]Examples[/bold]

    [cyan]torchscale benchmark --dry-run[/cyan]

    [cyan]torchscale benchmark my_matrix.yaml --gpu_counts=\\[1,2,4,8] --benchmark.repeats=3[/cyan]

    [cyan]torchscale benchmark my_matrix.yaml --rerun failed[/cyan]
    """
    from torchscale.launch.machine import detect_machine  # noqa: PLC0415 - `--help` does not need it
    from torchscale.plan import make_plan  # noqa: PLC0415

    experiment = load_config(context, config, config_option)
    with status("Looking at this machine"):
        machine = detect_machine()
    plan = make_plan(experiment, machine)
    folder = output_dir if output_dir is not None else RESULTS / experiment.experiment_name
    if dry_run:
        forecast = _predicted(plan, machine, seconds=_PREDICTION_SECONDS if predict else 0.0)
        _show_plan(experiment, plan, machine, folder, forecast, as_json=as_json)
        return
    if not plan.to_run:
        raise MachineError(
            f"this machine can run none of the {len(plan.cells)} cells; the first: {plan.cells[0].skip_reason}",
            hint="`torchscale benchmark --dry-run` shows the reason of each",
        )
    with stop_on_signals() as stop:
        summary = _measure(experiment, plan, machine, folder, rerun, stop)
    _show_results(summary, folder, as_json=as_json)
    raise typer.Exit(_exit_code(summary, stop))


def load_config(context: typer.Context, first: str | None, named: Path | None = None) -> Experiment:
    """The experiment that a command's arguments describe: a config file and overrides, in any order.

    Args:
        context: Holds the arguments that are no options of the command.
        first: The first of them, which typer takes for the config file.
        named: From ``--config``.

    Raises:
        UsageError: no config is named and there is none to take, or several are.
        ConfigError: it is wrong; a line per mistake.
    """
    from torchscale.schema.loading import load_experiment  # noqa: PLC0415 - `--help` does not need it
    from torchscale.schema.overrides import split_arguments  # noqa: PLC0415

    plain, overrides = split_arguments([*([first] if first is not None else []), *context.args])
    configs = [*plain, *([str(named)] if named is not None else [])]
    if len(configs) > 1:
        raise UsageError(f"more than one config: {', '.join(configs)}", hint="overrides are written --key.sub=value")
    if not configs and not DEFAULT_CONFIG.exists():
        raise UsageError(
            f"no config: there is no {DEFAULT_CONFIG} here", hint="name one, or write one with `torchscale init`"
        )
    known = [option for parameter in context.command.params for option in parameter.opts if option.startswith("--")]
    return load_experiment(Path(configs[0]) if configs else DEFAULT_CONFIG, overrides, known_options=known)


def _measure(
    experiment: Experiment,
    plan: Plan,
    machine: Machine,
    path: Path,
    rerun: RerunChoice | None,
    stop: StopRequest,
) -> RunSummary:
    from torchscale.cli.live import make_listener  # noqa: PLC0415 - `--help` does not need it
    from torchscale.launch.process import adopt_orphans  # noqa: PLC0415
    from torchscale.store import RunFolder, locked_folder  # noqa: PLC0415
    from torchscale.sweep import Rerun, Sweep  # noqa: PLC0415

    adopt_orphans()
    with locked_folder(path):
        folder = RunFolder.create(path, experiment_file(experiment, plan, machine))
        sweep = Sweep(experiment, plan, folder)
        pending = sweep.prepare(None if rerun is None else Rerun(rerun.value))
        _announce(experiment, plan, machine, len(pending))
        _warn_of_other_conditions(folder.experiment, plan, experiment.benchmark.repeats, len(pending))
        detail(f"run folder: {path}")
        with make_listener(plan.device, len(pending), experiment.benchmark.repeats) as listener:
            return sweep.run(pending, listener, stop, _profiler(experiment, plan))


def _profiler(experiment: Experiment, plan: Plan) -> CellProfiler | None:
    """Who profiles, where the config asks for it."""
    from torchscale.launch.torchrun import LaunchLimits  # noqa: PLC0415 - `--help` does not need it
    from torchscale.profiling import CellProfiler, choose_tool  # noqa: PLC0415
    from torchscale.schema.record_request import Target  # noqa: PLC0415

    settings = experiment.profiling
    if not settings.enabled or settings.trigger == "never":
        return None
    choice = choose_tool(settings.tool, plan.device)
    if choice.note:
        note(choice.note)
    limits = LaunchLimits(experiment.launch.timeout_seconds, experiment.launch.stall_timeout_seconds)
    target = Target(settings.target)
    return CellProfiler(plan, choice, target, settings.seconds, settings.max_steps, limits, experiment.launch.env)


def experiment_file(experiment: Experiment, plan: Plan, machine: Machine) -> ExperimentFile:
    """What goes into the run folder, secrets left out."""
    from torchscale.names import __version__  # noqa: PLC0415 - `--help` does not need it
    from torchscale.schema.environment import redact  # noqa: PLC0415
    from torchscale.schema.experiment import ExperimentFile  # noqa: PLC0415

    env = {name: redact(name, value) for name, value in experiment.launch.env.items()}
    shown = experiment.model_copy(update={"launch": experiment.launch.model_copy(update={"env": env})})
    return ExperimentFile(
        tool_version=__version__,
        config=shown,
        plan_hash=plan.hash,
        plan=plan.cells,
        environment=machine.environment,
        created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        threads_per_rank=plan.threads_per_rank,
    )


def _announce(experiment: Experiment, plan: Plan, machine: Machine, pending: int) -> None:
    """What is about to happen, before the first long wait."""
    launches = len(plan.to_run) * experiment.benchmark.repeats
    skipped = len(plan.cells) - len(plan.to_run)
    where = device_words(plan, machine)
    done = f", {launches - pending} done before" if pending < launches else ""
    left_out = f"; {skipped} skipped (see --dry-run)" if skipped else ""
    noun = "launch" if launches == 1 else "launches"
    note(f"{experiment.experiment_name}: {len(plan.to_run)} cells, {launches} {noun}{done}{left_out}, on {where}")


def _warn_of_other_conditions(file: ExperimentFile, plan: Plan, repeats: int, pending: int) -> None:
    """Where what is about to be measured joins what was measured otherwise."""
    from torchscale.analysis.conditions import unlike_before  # noqa: PLC0415 - `--help` does not need it
    from torchscale.report.words import listed  # noqa: PLC0415

    changed = unlike_before(file.sittings)
    if changed and 0 < pending < len(plan.to_run) * repeats:
        note(
            f"warning: what was measured before was under other conditions ({listed(changed)} changed); the "
            "report says so, another --output-dir keeps them apart"
        )


def device_words(plan: Plan, machine: Machine) -> str:
    """``2 × NVIDIA H200``, or what of the CPU."""
    if plan.device == "cuda":
        names = sorted({info.name for info in machine.environment.devices})
        return f"{len(plan.device_indices)} × {', '.join(names)}"
    threads = f"{plan.threads_per_rank} thread{'s' * (plan.threads_per_rank > 1)}"
    return f"CPU ({len(plan.device_indices)} cores, {threads} per rank, gloo)"


def _show_plan(
    experiment: Experiment, plan: Plan, machine: Machine, folder: Path, forecast: Forecast, *, as_json: bool
) -> None:
    from torchscale.cli.plan_view import plan_json, print_plan  # noqa: PLC0415 - `--help` does not need it

    if as_json:
        typer.echo(plan_json(plan, forecast))
        return
    where = device_words(plan, machine)
    print_plan(plan, where=where, folder=folder, settings=experiment.benchmark, forecast=forecast)


def _predicted(plan: Plan, machine: Machine, *, seconds: float) -> Forecast:
    """What the plan's training cells are predicted to take of a device, and what a device has; nothing in no time."""
    from torchscale.cli.plan_view import Forecast  # noqa: PLC0415 - `--help` does not need it
    from torchscale.launch.prediction import predict_cells  # noqa: PLC0415
    from torchscale.schema.cell import Cell  # noqa: PLC0415
    from torchscale.schema.memory import MemoryCell  # noqa: PLC0415

    trained = [cell.training if isinstance(cell, MemoryCell) else cell for cell in plan.to_run]
    cells = [cell for cell in trained if isinstance(cell, Cell)]
    with status("Predicting memory"):
        predicted = predict_cells(cells, timeout_seconds=seconds) if seconds and cells else {}
    sizes = [info.memory_bytes for info in machine.environment.devices if info.index in plan.device_indices]
    known = [size for size in sizes if size is not None]
    if plan.device == "cpu":
        known = [machine.environment.memory_bytes] if machine.environment.memory_bytes is not None else []
    return Forecast(predicted, min(known, default=None), shared=plan.device == "cpu")


def _show_results(summary: RunSummary, folder: Path, *, as_json: bool) -> None:
    from torchscale.report.console import print_results  # noqa: PLC0415 - `--help` does not need it
    from torchscale.report.export import summary_json  # noqa: PLC0415

    if as_json:
        typer.echo(summary_json(summary))
        return
    print_results(summary, result_console())
    note(f"Results: {folder}. Next: torchscale report --source {folder}")


def _exit_code(summary: RunSummary, stop: StopRequest) -> ExitCode:
    from torchscale.schema.record import State  # noqa: PLC0415 - `--help` does not need it

    if stop.asked:
        return ExitCode.INTERRUPTED
    fine = all(cell.state in (State.OK, State.SKIPPED) for cell in summary.everything)
    return ExitCode.OK if fine else ExitCode.FAILED


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    """Ctrl-C and TERM ask the sweep to end in order; a second one ends the running launch without grace."""
    from torchscale.launch.torchrun import StopRequest  # noqa: PLC0415 - `--help` does not need it

    stop = StopRequest()

    def ask(number: int, frame: FrameType | None) -> None:
        del number, frame
        stop.count += 1

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
