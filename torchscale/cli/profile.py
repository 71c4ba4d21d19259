"""``torchscale profile``: record a workload or the user's own training, and report what limits it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from torchscale.cli.options import JsonOption, config_values
from torchscale.cli.output import TERMINAL, is_quiet, result_console
from torchscale.cli.parsing import parse_seconds
from torchscale.config.choices import ProfileTarget, ToolChoice, WindowChoice
from torchscale.errors import UsageError

if TYPE_CHECKING:
    from torchscale.config.experiment import Experiment
    from torchscale.run.profile import ProfileOutcome

_COMMAND_KEY = "torchscale.command"


class _WithProgram(TyperGroup):
    """What follows ``--`` is the user's program, not a subcommand."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401 - its type moved within typer
        if "--" in args:
            place = args.index("--")
            ctx.meta[_COMMAND_KEY] = args[place + 1 :]
            args = args[:place]
        return super().parse_args(ctx, args)


app = typer.Typer(cls=_WithProgram, invoke_without_command=True)


@app.callback()
def profile(
    context: typer.Context,
    gpus: Annotated[int | None, typer.Option("--gpus", "-n", min=1, help="Ranks. Default: all devices.")] = None,
    duration: Annotated[str, typer.Option("--duration", help="Record this long: 30, 30s, 2m.")] = "10s",
    max_steps: Annotated[int, typer.Option("--max-steps", min=2, help="Record no more steps than this.")] = 200,
    target: Annotated[ProfileTarget, typer.Option("--target", help="What to look for first.")] = (
        ProfileTarget.SYNC_STALLS
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
    """Record some training steps and report what limits them: which ranks wait for which, where, and what it costs.

    Without a program it trains one of torchscale's own workloads. Put your own command after [bold]--[/bold]; nsys
    runs it unmodified, or torch.profiler records it through one line in your loop:

        with torchscale.step_profiler() as p: … p.step()

    Exit codes: 0 analyzed; 1 nothing could be analyzed; 2 wrong input; 3 this machine cannot do it; 130 interrupted.

    [bold]Examples[/bold]

    [cyan]torchscale profile --gpus 4 --duration 30s --target sync_stalls --model resnet50 --batch-size 64[/cyan]

    [cyan]torchscale profile --duration 30s -- torchrun --standalone --nproc-per-node 4 train.py[/cyan]

    [cyan]torchscale profile analyze traces/ --json[/cyan]
    """
    if context.invoked_subcommand is not None:
        return
    seconds = parse_seconds("--duration", duration)
    command: list[str] | None = context.meta.get(_COMMAND_KEY)
    from torchscale.run import profile as run  # noqa: PLC0415 - `--help` does not need it

    if command is None:
        outcome = run.profile_workload(
            _experiment(config, model, batch_size, gpus),
            output_dir=output_dir,
            seconds=seconds,
            max_steps=max_steps,
            target=target,
            tool=tool,
            observer=TERMINAL,
        )
    else:
        if not command:
            raise UsageError("nothing follows --", hint="torchscale profile -- python train.py")
        if model is not None or batch_size is not None or config is not None or gpus is not None:
            raise UsageError(
                "--model, --batch-size, --config and --gpus are for torchscale's own workloads",
                hint="give the number of ranks to your own launcher: torchrun --nproc-per-node 4 …",
            )
        outcome = run.profile_program(
            command,
            output_dir=output_dir,
            seconds=seconds,
            max_steps=max_steps,
            target=target,
            tool=tool,
            delay_seconds=parse_seconds("--delay", delay),
            keep_running=keep_running,
            on_output=_discard if is_quiet() else _pass_on,
            observer=TERMINAL,
        )
    if outcome.profile is None:
        raise typer.Exit(outcome.exit_code)
    _show(outcome, target, as_json=as_json)


@app.command("analyze")
def analyze(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH…", help=".nsys-rep, .sqlite, .json, .json.gz, .tar.gz, or directories of them."),
    ],
    window: Annotated[
        WindowChoice, typer.Option("--window", help="auto: marked steps, else from first to last device span.")
    ] = WindowChoice.AUTO,
    output_dir: Annotated[
        Path | None,
        typer.Option("--output-dir", "-o", help="Also write analysis.json and a timeline for Perfetto here."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Analyze recordings made elsewhere, of one or many ranks; needs no torch and no GPU.

    [bold]Examples[/bold]

    [cyan]torchscale profile analyze rank0.json.gz rank1.json.gz[/cyan]

    [cyan]torchscale profile analyze run.sqlite --json[/cyan]
    """
    from torchscale.report.terminal.profile import print_analysis  # noqa: PLC0415 - `--help` does not need it
    from torchscale.run.profile import analyze_recordings  # noqa: PLC0415

    analysis = analyze_recordings(paths, window=window, output_dir=output_dir, observer=TERMINAL)
    if as_json:
        typer.echo(analysis.model_dump_json(indent=1))
        return
    print_analysis(analysis, result_console())
    if output_dir is not None:
        TERMINAL.note(f"Wrote {output_dir}/analysis.json and a timeline for ui.perfetto.dev")


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
    from torchscale.run.profile import strip_recording  # noqa: PLC0415 - `--help` does not need it

    left_out = strip_recording(source, output)
    without = ", ".join(left_out) if left_out else "any table of environment: the export has none"
    TERMINAL.note(f"Wrote {output} without {without}")


def _experiment(config: Path | None, model: str | None, batch_size: int | None, gpus: int | None) -> Experiment:
    """The config, or defaults, with what the options say."""
    from torchscale.config.load import load_experiment  # noqa: PLC0415 - `--help` does not need it

    defaults = {"experiment_name": "profile", "models": ["resnet18"], "batch_sizes": [32]} if config is None else {}
    values = config_values(
        defaults,
        {
            "--model": ("models", None if model is None else [model]),
            "--batch-size": ("batch_sizes", None if batch_size is None else [batch_size]),
            "--gpus": ("gpu_counts", None if gpus is None else [gpus]),
        },
    )
    return load_experiment(config, values=values)


def _pass_on(output: bytes) -> None:
    """The program's output goes where messages go, so that results can be piped."""
    if output:
        sys.stderr.buffer.write(output)
        sys.stderr.buffer.flush()


def _discard(output: bytes) -> None:
    del output


def _show(outcome: ProfileOutcome, target: ProfileTarget, *, as_json: bool) -> None:
    from torchscale.report.terminal.profile import print_analysis  # noqa: PLC0415 - `--help` does not need it

    analysis = outcome.analysis
    if as_json:
        typer.echo(analysis.model_dump_json(indent=1))
        return
    print_analysis(analysis, result_console(), target)
    TERMINAL.note(f"Recording, analysis.json and a timeline for ui.perfetto.dev: {os.path.relpath(outcome.directory)}")
