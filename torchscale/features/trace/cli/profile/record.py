"""``torchscale profile``: record a workload or the user's own training, and report what limits
it."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.command import COMMAND_KEY, overrides_of, words_of
from torchscale.cli.copying import CopyOption, with_copy
from torchscale.cli.options import JsonOption, config_values, known_options
from torchscale.cli.output import TERMINAL, is_quiet, print_error, print_json, result_console
from torchscale.cli.parameters import option
from torchscale.cli.parsing import parse_delay, parse_seconds
from torchscale.cli.workload import WorkloadOptions
from torchscale.config.choices import ProfileTarget, ToolChoice
from torchscale.errors import UsageError
from torchscale.util.addresses import is_copy

if TYPE_CHECKING:
    from torchscale.config.experiment import Experiment
    from torchscale.config.values import ConfigValue
    from torchscale.features.trace.profile import ProfileOutcome


def profile(
    context: typer.Context,
    *,
    workload: WorkloadOptions,
    duration: Annotated[
        str, option("--duration -d TIME", "Record this long: 30, 30s, 2m.")
    ] = "10s",
    max_steps: Annotated[
        int | None,
        option(
            "--max-steps",
            "Record no more steps than this; else 200 with torch.profiler, 1000 with nsys.",
            min=2,
        ),
    ] = None,
    target: Annotated[ProfileTarget, option("--target -t", "What to look for first.")] = (
        ProfileTarget.SYNC_STALLS
    ),
    config: Annotated[
        Path | None,
        option("--config -c FILE", "A config that describes one workload; or the argument."),
    ] = None,
    tool: Annotated[
        ToolChoice, option("--tool", "auto: nsys on CUDA where it is complete, else kineto.")
    ] = (ToolChoice.AUTO),
    output_dir: Annotated[
        Path | None,
        option(
            "--output-dir -o DIR",
            "Run folder, new or one to join. Default: results/profile-<what>-<time>",
        ),
    ] = None,
    delay: Annotated[
        str, option("--delay TIME", "Own program under nsys: record after this; 0 for at once.")
    ] = "30s",
    keep_running: Annotated[
        bool,
        option(
            "--keep-running",
            "Own program: leave it alone after the recording; this command ends with it.",
        ),
    ] = False,
    copy_to: CopyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Record some training steps and report what limits them: which ranks wait for which, where,
    and what it costs.

    Without a program it trains a workload: that of a config, of a benchmark's folder ([bold]-o
    results/demo[/bold]: what was measured there), or of options; by default resnet18 at batch 32.
    Put your own command after [bold]--[/bold]; nsys runs it unmodified, or torch.profiler records
    it through one line in your loop:

        with torchscale.step_profiler() as p: … p.step()

    Ctrl-C ends the recording early and analyzes what there is; a second one ends everything. With
    [bold]--keep-running[/bold] your program goes on after the recording, and this command ends with
    it.

    Exit codes: 0 analyzed; 1 nothing could be analyzed; 2 wrong input; 3 this machine cannot do it;
    130 interrupted; else that of your program, if it failed.

    [bold]Examples[/bold]

    [cyan]torchscale profile --model resnet50 --batch-size 64 --gpus 4 --duration 30s[/cyan]

    [cyan]torchscale profile -o results/demo --training.precision=bf16[/cyan]

    [cyan]torchscale profile --duration 30s -- torchrun --standalone --nproc-per-node 4
    train.py[/cyan]

    [cyan]torchscale profile analyze traces/ --json[/cyan]
    """
    if context.invoked_subcommand is not None:
        return
    recording = _Recording(
        output_dir, parse_seconds("--duration", duration), max_steps, target, tool
    )
    options = config_values(context, {}, workload.values(context))
    command: list[str] | None = context.meta.get(COMMAND_KEY)
    if command is None:
        outcome = _profile_workload(context, config, options, recording)
        if outcome.problem is None:
            _show(outcome, target, as_json=as_json)
    else:
        _check_program(command, is_configured=_is_configured(context, config, options))
        outcome = _profile_program(command, recording, delay, keep_running, as_json=as_json)
    if outcome.problem is not None and not outcome.is_interrupted:
        print_error(outcome.problem)
    raise typer.Exit(with_copy(outcome.exit_code, outcome.run_folder, copy_to))


@dataclass(frozen=True)
class _Recording:
    """What is recorded, of a workload or a program."""

    output_dir: Path | None
    seconds: float
    max_steps: int | None
    target: ProfileTarget
    tool: ToolChoice


def _profile_workload(
    context: typer.Context, config: Path | None, options: list[ConfigValue], recording: _Recording
) -> ProfileOutcome:
    from torchscale.features.trace.profile import profile_workload  # noqa: PLC0415 - `--help` does not need it

    config, output_dir = _place(words_of(context), config, recording.output_dir)
    experiment, is_of_folder = _experiment(context, config, output_dir, options)
    return profile_workload(
        experiment,
        output_dir=output_dir,
        seconds=recording.seconds,
        max_steps=recording.max_steps,
        target=recording.target,
        tool=recording.tool,
        any_workload=is_of_folder,
        observer=TERMINAL,
    )


def _profile_program(
    command: list[str], recording: _Recording, delay: str, keep_running: bool, *, as_json: bool
) -> ProfileOutcome:
    from torchscale.features.trace.profile import profile_program  # noqa: PLC0415 - `--help` does not need it

    return profile_program(
        command,
        output_dir=recording.output_dir,
        seconds=recording.seconds,
        max_steps=recording.max_steps,
        target=recording.target,
        tool=recording.tool,
        delay_seconds=parse_delay("--delay", delay),
        keep_running=keep_running,
        on_output=_discard if is_quiet() else _pass_on,
        on_profile=lambda recorded: _show(recorded, recording.target, as_json=as_json),
        observer=TERMINAL,
    )


def _is_configured(context: typer.Context, config: Path | None, options: list[ConfigValue]) -> bool:
    """Whether anything was given that describes a workload of torchscale's own."""
    return bool(options or config is not None or words_of(context) or overrides_of(context))


def _check_program(command: list[str], *, is_configured: bool) -> None:
    """
    Raises:
        UsageError: there is no program, or something that only torchscale's own workloads have.
    """
    if not command:
        raise UsageError("nothing follows --", hint="torchscale profile -- python train.py")
    if is_configured:
        raise UsageError(
            "a config, --model, --batch-size, --gpus and the like are for torchscale's own "
            "workloads",
            hint="give the number of ranks to your own launcher: torchrun --nproc-per-node 4 …",
        )


def _place(
    words: list[str], config: Path | None, output_dir: Path | None
) -> tuple[Path | None, Path | None]:
    """The config and the run folder, of which one may be an argument.

    Raises:
        UsageError: there are several arguments, or a second config.
    """
    if not words:
        return config, output_dir
    from torchscale.read.folders import run_by_name  # noqa: PLC0415 - `--help` does not need it

    argument = run_by_name(Path(words[0]))
    if is_copy(argument):
        raise UsageError(
            f"{argument}: a config or a run folder to record into is local",
            hint=f"torchscale profile analyze {argument}",
        )
    if len(words) > 1 or (config is not None and not argument.is_dir()):
        raise UsageError(
            f"unexpected argument {words[-1]!r}",
            hint="torchscale profile CONFIG, or -- and a program",
        )
    if argument.is_dir():
        return config, argument
    return argument, output_dir


def _experiment(
    context: typer.Context, config: Path | None, output_dir: Path | None, options: list[ConfigValue]
) -> tuple[Experiment, bool]:
    """The config, what the run folder measured, or defaults, with what the options say; and whether
    it is the run folder's."""
    from torchscale.config.load import load_experiment  # noqa: PLC0415 - `--help` does not need it
    from torchscale.config.values import ConfigValue  # noqa: PLC0415
    from torchscale.features.trace.profiled_workload import measured_config  # noqa: PLC0415

    overrides, known = overrides_of(context), known_options(context)
    if config is not None:
        return load_experiment(config, overrides, known, options), False
    base = None if output_dir is None else measured_config(output_dir)
    if base is not None:
        TERMINAL.note(f"Config: what {output_dir} measured")
        return load_experiment(None, overrides, known, options, base=base), True
    defaults = {"experiment_name": "profile", "models": ["resnet18"], "batch_sizes": [32]}
    values = [ConfigValue(key, value) for key, value in defaults.items()]
    return load_experiment(None, overrides, known, [*values, *options]), False


def _pass_on(output: bytes) -> None:
    """The program's output goes where messages go, so that results can be piped."""
    if output:
        sys.stderr.buffer.write(output)
        sys.stderr.buffer.flush()


def _discard(output: bytes) -> None:
    del output


def _show(outcome: ProfileOutcome, target: ProfileTarget, *, as_json: bool) -> None:
    from torchscale.features.trace.terminal import print_analysis  # noqa: PLC0415 - `--help` does not need it

    analysis = outcome.analysis
    if as_json:
        print_json(analysis.model_dump_json(indent=1))
        return
    print_analysis(analysis, result_console(), target)
    TERMINAL.note(
        "Recording, analysis.json and a timeline for ui.perfetto.dev: "
        f"{os.path.relpath(outcome.directory)}"
    )
    TERMINAL.note(f"Next: torchscale report {shlex.quote(os.path.relpath(outcome.run_folder))}")
