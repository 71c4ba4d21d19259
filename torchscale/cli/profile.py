"""``torchscale profile``: record a workload or the user's own training, and say what holds it back."""

from __future__ import annotations

import os
import sys
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from torchscale.cli.output import is_quiet, note, result_console, status
from torchscale.errors import ExitCode, MachineError, OutputError, TorchscaleError, TraceError, UsageError
from torchscale.names import RECORD_VARIABLE
from torchscale.units import parse_duration

if TYPE_CHECKING:
    from torchscale.launch.torchrun import StopRequest
    from torchscale.plan import Plan
    from torchscale.profiling import Choice, Profile
    from torchscale.schema.cell import Cell
    from torchscale.schema.config import Experiment
    from torchscale.schema.experiment import ExperimentFile

PROFILES = Path("profiles")
_COMMAND_KEY = "torchscale.command"
_PROGRAM_MARGIN_SECONDS = 1800.0


class _WithProgram(TyperGroup):
    """What follows ``--`` is the user's program, not a subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - its type moved within typer
        if "--" in args:
            place = args.index("--")
            ctx.meta[_COMMAND_KEY] = args[place + 1 :]
            args = args[:place]
        return super().parse_args(ctx, args)


class ToolChoice(str, Enum):
    """Values of ``--tool``."""

    AUTO = "auto"
    NSYS = "nsys"
    KINETO = "kineto"


class TargetChoice(str, Enum):
    """Values of ``--target``."""

    SYNC_STALLS = "sync_stalls"
    KERNELS = "kernels"
    MEMORY = "memory"
    INPUT = "input"
    ALL = "all"


class WindowOption(str, Enum):
    """Values of ``--window``."""

    AUTO = "auto"
    STEPS = "steps"
    DEVICE = "device"


app = typer.Typer(cls=_WithProgram, invoke_without_command=True)
JsonOption = Annotated[bool, typer.Option("--json", help="Print the analysis as JSON.")]


@app.callback()
def profile(
    context: typer.Context,
    gpus: Annotated[int | None, typer.Option("--gpus", "-n", min=1, help="Ranks. Default: all devices.")] = None,
    duration: Annotated[str, typer.Option("--duration", help="Record this long: 30, 30s, 2m.")] = "10s",
    max_steps: Annotated[int, typer.Option("--max-steps", min=2, help="Record no more steps than this.")] = 200,
    target: Annotated[TargetChoice, typer.Option("--target", help="What to look for first.")] = (
        TargetChoice.SYNC_STALLS
    ),
    model: Annotated[str | None, typer.Option("--model", help="A model of `torchscale list models`.")] = None,
    batch_size: Annotated[int | None, typer.Option("--batch-size", min=1, help="Samples per device. Default: 32")] = (
        None
    ),
    config: Annotated[Path | None, typer.Option("--config", "-c", help="A config that describes one workload.")] = None,
    tool: Annotated[
        ToolChoice, typer.Option("--tool", help="auto: nsys on CUDA where it is complete, else kineto.")
    ] = (ToolChoice.AUTO),
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", "-o", help="Run folder, new or one to join. Default: profiles/<time>"),
    ] = None,
    delay: Annotated[str, typer.Option("--delay", help="Own program under nsys: start recording after this.")] = "30s",
    keep_running: Annotated[
        bool, typer.Option("--keep-running", help="Own program: let it go on after the recording.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Record some training steps and say what holds them back: who waits for whom, for what, and what it costs.

    Without a program it trains one of torchscale's own workloads. After [bold]--[/bold] stands your own training, which
    is wrapped in nsys as it is, or recorded by torch.profiler through one line in your loop:

        with torchscale.step_profiler() as p: … p.step()

    Exit codes: 0 analysed; 1 nothing could be analysed; 2 wrong input; 3 this machine cannot do it; 130 interrupted.

    [bold]Examples[/bold]

    [cyan]torchscale profile --gpus 4 --duration 30s --target sync_stalls --model resnet50 --batch-size 64[/cyan]

    [cyan]torchscale profile --duration 30s -- torchrun --standalone --nproc-per-node 4 train.py[/cyan]

    [cyan]torchscale profile analyze traces/ --json[/cyan]
    """
    if context.invoked_subcommand is not None:
        return
    seconds = _seconds("--duration", duration)
    command: list[str] | None = context.meta.get(_COMMAND_KEY)
    directory = output_dir if output_dir is not None else PROFILES / time.strftime("%Y%m%d-%H%M%S")
    if command is None:
        experiment = _experiment(config, model, batch_size, gpus)
        found = _profile_workload(experiment, directory, seconds, max_steps, target, tool)
    else:
        if not command:
            raise UsageError("nothing follows --", hint="torchscale profile -- python train.py")
        if model is not None or batch_size is not None or config is not None or gpus is not None:
            raise UsageError(
                "--model, --batch-size, --config and --gpus are for torchscale's own workloads",
                hint="give the number of ranks to your own launcher: torchrun --nproc-per-node 4 …",
            )
        found = _profile_program(
            command, directory, seconds, max_steps, target, tool, _seconds("--delay", delay), keep_running
        )
    _show(found, target, as_json=as_json)


@app.command("analyze")
def analyze(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH…", help=".nsys-rep, .sqlite, .json, .json.gz, .tar.gz, or directories of them."),
    ],
    window: Annotated[
        WindowOption, typer.Option("--window", help="auto: marked steps, else from first to last device span.")
    ] = WindowOption.AUTO,
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", "-o", help="Also write analysis.json and a timeline for Perfetto here."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Analyse recordings made elsewhere, of one or many ranks; needs no torch and no GPU.

    [bold]Examples[/bold]

    [cyan]torchscale profile analyze rank0.json.gz rank1.json.gz[/cyan]

    [cyan]torchscale profile analyze run.sqlite --json[/cyan]
    """
    from torchscale.analysis.rank_window import WindowChoice  # noqa: PLC0415 - `--help` does not need it
    from torchscale.profiling import analyse_files  # noqa: PLC0415
    from torchscale.report.profile_console import print_analysis  # noqa: PLC0415

    if output_dir is not None:
        _make(output_dir)
    with status("Reading the recordings"):
        analysis = analyse_files(paths, WindowChoice(window.value), output_dir)
    if as_json:
        typer.echo(analysis.model_dump_json(indent=1))
        return
    print_analysis(analysis, result_console())
    if output_dir is not None:
        note(f"Wrote {output_dir}/analysis.json and a timeline for ui.perfetto.dev")


@app.command("strip")
def strip(
    source: Annotated[Path, typer.Argument(metavar="FILE.sqlite", help="An export of nsys.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The copy to write.")],
) -> None:
    """Copy an nsys export without the environment that nsys records, tokens included, so that it can be shared.

    The .nsys-rep holds it too and cannot be stripped: share the copy.

    [bold]Example[/bold]

    [cyan]torchscale profile strip run.sqlite --output run-to-share.sqlite[/cyan]
    """
    from torchscale.traces.nsys import strip_environment  # noqa: PLC0415 - `--help` does not need it

    if not source.is_file():
        raise TraceError(f"{source}: no such file")
    left_out = strip_environment(source, output)
    note(f"Wrote {output} without {', '.join(left_out) or 'any table of environment: there was none'}")


def _seconds(option: str, text: str) -> float:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from error
    if not seconds > 0:
        raise UsageError(f"{option}: {text} is no time to record", hint="write 30, 30s, 2m")
    return seconds


def _experiment(config: Path | None, model: str | None, batch_size: int | None, gpus: int | None) -> Experiment:
    """The config, or defaults, with what the options say."""
    from torchscale.schema.loading import load_experiment  # noqa: PLC0415 - `--help` does not need it

    overrides = ["--experiment_name=profile", "--models=resnet18", "--batch_sizes=32"] if config is None else []
    if model is not None:
        overrides.append(f"--models={model}")
    if batch_size is not None:
        overrides.append(f"--batch_sizes={batch_size}")
    if gpus is not None:
        overrides.append(f"--gpu_counts={gpus}")
    return load_experiment(config, overrides)


def _profile_workload(
    experiment: Experiment, directory: Path, seconds: float, max_steps: int, target: TargetChoice, tool: ToolChoice
) -> Profile:
    from torchscale.cli.benchmark import experiment_file, stop_on_signals  # noqa: PLC0415
    from torchscale.launch.machine import detect_machine  # noqa: PLC0415
    from torchscale.launch.process import adopt_orphans  # noqa: PLC0415
    from torchscale.launch.torchrun import LaunchLimits  # noqa: PLC0415
    from torchscale.plan import make_plan  # noqa: PLC0415
    from torchscale.profiling import CellProfiler, choose_tool  # noqa: PLC0415
    from torchscale.schema.record_request import Target  # noqa: PLC0415
    from torchscale.store import RunFolder, locked_folder  # noqa: PLC0415

    with status("Looking at this machine"):
        machine = detect_machine()
    plan = make_plan(experiment, machine)
    cell = _one_cell(plan)
    with status("Looking for a profiler"):
        choice = choose_tool(tool.value, plan.device)
    _tell(choice)
    settings = experiment.launch
    limits = LaunchLimits(settings.timeout_seconds, settings.stall_timeout_seconds)
    profiler = CellProfiler(plan, choice, Target(target.value), seconds, max_steps, limits, settings.env)
    adopt_orphans()
    with locked_folder(directory), stop_on_signals() as stop:
        folder = RunFolder.join(directory, _unmeasured(experiment_file(experiment, plan, machine), cell))
        note(f"Recording {cell.model} on {cell.world_size} ranks with {choice.tool.value}")
        found = profiler.profile(cell, folder.begin_profile(cell), stop, lambda _: None)
        _leave_if_interrupted(stop)
        return found


def _unmeasured(experiment: ExperimentFile, cell: Cell) -> ExperimentFile:
    """With this cell alone, as one that is not measured."""
    from torchscale.schema.experiment import PlannedCell  # noqa: PLC0415 - `--help` does not need it
    from torchscale.store import PROFILED_ONLY  # noqa: PLC0415

    return experiment.model_copy(update={"plan": (PlannedCell(cell=cell, skip_reason=PROFILED_ONLY),)})


def _one_cell(plan: Plan) -> Cell:
    """The plan's largest count of its one workload.

    Raises:
        UsageError: it holds several workloads.
        MachineError: this machine cannot run it.
    """
    if not plan.training:
        skipped = [entry for entry in plan.cells if entry.skip_reason is not None]
        why = f"this machine cannot run {skipped[0].cell.id}: {skipped[0].skip_reason}" if skipped else ""
        raise MachineError(why or "the config trains nothing", hint="profile a config that measures training")
    if len({cell.series for cell in plan.training}) > 1:
        names = ", ".join(cell.id for cell in plan.training[:6])
        raise UsageError(
            f"the config describes several workloads ({names} …)",
            hint="choose one with --model and --batch-size, or profile during a benchmark: profiling.enabled: true",
        )
    return max(plan.training, key=lambda cell: cell.world_size)


def _profile_program(
    command: list[str],
    directory: Path,
    seconds: float,
    max_steps: int,
    target: TargetChoice,
    tool: ToolChoice,
    delay: float,
    keep_running: bool,
) -> Profile:
    from torchscale.cli.benchmark import stop_on_signals  # noqa: PLC0415
    from torchscale.launch.process import adopt_orphans  # noqa: PLC0415
    from torchscale.launch.recording import UserRun, record_program  # noqa: PLC0415
    from torchscale.profiling import analyse_recording, choose_tool  # noqa: PLC0415
    from torchscale.schema.record_request import RecordRequest, Target, Tool  # noqa: PLC0415

    with status("Looking for a profiler"):
        choice = choose_tool(tool.value, None)
    _tell(choice)
    _make(directory)
    if (directory / "recording.json").exists() or any(directory.glob("recorded-rank-*.json")):
        raise UsageError(f"{directory} holds a recording already", hint="name another --output-dir")
    request = RecordRequest(
        tool=choice.tool,
        target=Target(target.value),
        directory=str(directory.resolve()),
        seconds=seconds,
        max_steps=max_steps,
    )
    env = {RECORD_VARIABLE: request.model_dump_json()} if choice.tool is Tool.KINETO else {}
    run = UserRun(
        command=command,
        delay_seconds=delay,
        keep_running=keep_running,
        timeout_seconds=_PROGRAM_MARGIN_SECONDS + delay + seconds if not keep_running else float("inf"),
        env=env,
        on_output=_discard if is_quiet() else _pass_on,
    )
    adopt_orphans()
    with stop_on_signals() as stop:
        recording = record_program(run, request, choice.nsys, stop)
        if stop.asked and recording.files:
            note(f"Interrupted; what was recorded is kept: torchscale profile analyze {directory}")
        _leave_if_interrupted(stop)
    return analyse_recording(directory, recording)


def _pass_on(output: bytes) -> None:
    """The program's output goes where messages go, so that results can be piped."""
    if output:
        sys.stderr.buffer.write(output)
        sys.stderr.buffer.flush()


def _discard(output: bytes) -> None:
    del output


def _tell(choice: Choice) -> None:
    if choice.note:
        note(choice.note)


def _leave_if_interrupted(stop: StopRequest) -> None:
    if stop.asked:
        raise typer.Exit(ExitCode.INTERRUPTED)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot create {directory}: {error.strerror or error}") from error


def _show(found: Profile, target: TargetChoice, *, as_json: bool) -> None:
    from torchscale.report.profile_console import print_analysis  # noqa: PLC0415 - `--help` does not need it
    from torchscale.schema.record_request import Target  # noqa: PLC0415

    if found.analysis is None:
        raise TorchscaleError(f"nothing to analyse: {found.problem}", hint=f"what there is lies in {found.directory}")
    if as_json:
        typer.echo(found.analysis.model_dump_json(indent=1))
        return
    print_analysis(found.analysis, result_console(), Target(target.value))
    relative = os.path.relpath(found.directory)
    note(f"Recording, analysis.json and a timeline for ui.perfetto.dev: {relative}")
