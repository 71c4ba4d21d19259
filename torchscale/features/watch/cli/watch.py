"""``torchscale watch``: any training program, diagnosed while it runs."""

from __future__ import annotations

import contextlib
import os
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.command import COMMAND_KEY, WithProgram, words_of
from torchscale.cli.options import JsonOption
from torchscale.cli.output import TERMINAL, message_console, print_json, result_console
from torchscale.cli.parameters import option
from torchscale.cli.parsing import check_price, parse_seconds
from torchscale.errors import ProgramExit, TorchscaleError, UsageError
from torchscale.util.text import program_name

if TYPE_CHECKING:
    from torchscale.features.watch.job.run import EndedProgram

app = typer.Typer(
    cls=WithProgram,
    invoke_without_command=True,
    subcommand_metavar="[RUN] [-- PROGRAM]",
)


@app.callback()
def watch(
    context: typer.Context,
    output_dir: Annotated[
        Path | None,
        option(
            "--output-dir -o DIR",
            "New folder for what is collected. Default: results/watch-<program>-<time>",
        ),
    ] = None,
    append: Annotated[
        bool,
        option(
            "--append",
            "Add to the job in --output-dir, if there is one: a job that is requeued or "
            "started again is one job. Where nothing can be added to it, a folder beside it "
            "is taken: the program is started in any case.",
        ),
    ] = False,
    live: Annotated[
        bool | None,
        option(
            "--live/--no-live",
            "Print findings as they appear. Default: where messages go to a terminal.",
        ),
    ] = None,
    keep_events: Annotated[
        bool, option("--keep-events", "Keep the moments of all ranks, up to 24 MB each.")
    ] = False,
    stall: Annotated[
        str,
        option(
            "--stall TIME", "Look why the job hangs after so long without a step or a collective."
        ),
    ] = "2m",
    cost: Annotated[
        float | None,
        option(
            "--cost DOLLARS",
            "Price of a device and hour: what each part of the wall time cost, and findings.",
        ),
    ] = None,
    timing: Annotated[
        bool,
        option(
            "--timing",
            "On GPUs: have torch time each collective, so that the rank which the others wait "
            "for is known.",
        ),
    ] = False,
    follow: Annotated[int | None, typer.Option("--follow", hidden=True)] = None,
    as_json: JsonOption = False,
) -> None:
    """Run a training program, unchanged, and say what limits it: which rank the others wait for, at
    which collective and line, since which step, and what it costs.

    Put your own command after [bold]--[/bold]: torchrun, python, accelerate launch, srun. Its input,
    output and exit code stay its own. Every strategy counts: DistributedDataParallel, FSDP2, ZeRO,
    tensor and pipeline parallelism, own loops of collectives. A collector in each rank takes steps
    (torch.optim), waits for data (DataLoader), collectives (torch's flight recorder) and waits for
    them. Nothing is sent anywhere.

    With the folder of a job instead of a program it shows what is known of it, also while it runs.

    Exit codes: those of the program; 2 wrong input; 3 the program cannot be started.

    [bold]Examples[/bold]

    [cyan]torchscale watch -- torchrun --standalone --nproc-per-node 4 train.py[/cyan]

    [cyan]torchscale watch --timing -- torchrun --nproc-per-node 8 train.py[/cyan]

    [cyan]torchscale watch -o results/tuesday -- python train.py --epochs 3[/cyan]

    [cyan]torchscale watch --append -o results/big-job -- srun torchrun … train.py[/cyan]

    [cyan]torchscale watch results/tuesday --cost 2.50[/cyan]
    """
    check_price(cost)
    command: list[str] | None = context.meta.get(COMMAND_KEY)
    if follow is not None:
        from torchscale.features.watch.job.keep import keep_run  # noqa: PLC0415
        from torchscale.features.watch.job.run import follow_job  # noqa: PLC0415 - `--help` does not need it

        keep_run(follow_job(Path(words_of(context)[0]), follow))
        return
    if command is None:
        _show_job(words_of(context), cost, as_json=as_json)
        return
    if not command:
        raise UsageError("nothing follows --", hint="torchscale watch -- python train.py")
    from torchscale.features.watch.hang.terminal import print_hang  # noqa: PLC0415 - `--help` does not need it
    from torchscale.features.watch.job.relay import Relay  # noqa: PLC0415
    from torchscale.features.watch.job.run import WatchRequest, run_program  # noqa: PLC0415

    directory = output_dir if output_dir is not None else _default_folder(command)
    _check_folder(directory, append=append, is_named=output_dir is not None)
    is_live = live if live is not None else _is_terminal()
    request = WatchRequest(
        command,
        directory,
        appends=append,
        on_note=_note,
        on_finding=TERMINAL.note if is_live else lambda _: None,
        on_hang=lambda verdict, seconds: print_hang(verdict, seconds, message_console()),
        stall_seconds=parse_seconds("--stall", stall),
        keeps_events=keep_events,
        price=cost,
        timing=timing,
    )
    with Relay().opened() as relay:
        program = run_program(request, relay)
        try:
            _summarize(program, as_json=as_json)
        except Exception as error:  # noqa: BLE001 - the exit code is the program's, whatever fails here
            _note(f"no summary: {getattr(error, 'message', repr(error))}")
    raise ProgramExit(program.exit_code)


def _summarize(program: EndedProgram, *, as_json: bool) -> None:
    """Write and print what is known of a program that has ended."""
    from torchscale.features.watch.job.keep import keep_run  # noqa: PLC0415 - `--help` does not need it
    from torchscale.features.watch.terminal import print_watch  # noqa: PLC0415

    watched = program.watched()
    if watched is None:
        return
    report, problem = watched.report, keep_run(watched)
    if as_json:
        print_json(report.model_dump_json(indent=1))
    else:
        print_watch(report, message_console())
        if _is_written(watched.directory, report.seconds):
            TERMINAL.note(f"Wrote {os.path.relpath(watched.directory)}/watch.json")
    if problem:
        TERMINAL.note(f"note: no run for `torchscale report`: {problem}")


def _note(text: str) -> None:
    """A line, where there is somewhere to write it."""
    with contextlib.suppress(OSError, ValueError):
        TERMINAL.note(f"note: {text}")


def _is_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _is_written(directory: Path, seconds: float) -> bool:
    """Whether the report of so long a job is in the folder, and not one from before the disk was
    full."""
    from torchscale.features.watch.job.read import read_watch  # noqa: PLC0415 - `--help` does not need it

    try:
        return read_watch(directory).seconds == seconds
    except TorchscaleError:
        return False


def _check_folder(directory: Path, *, append: bool, is_named: bool) -> None:
    """That the folder is new. With ``--append`` the program is started whatever is there."""
    from torchscale.features.watch.job.runs import is_job  # noqa: PLC0415 - `--help` does not need it

    if append and not is_named:
        raise UsageError(
            "--append has no job to add to: every run without --output-dir has a new folder",
            hint="torchscale watch --append -o results/tuesday -- PROGRAM",
        )
    if append or not directory.exists() or not any(directory.iterdir()):
        return
    other = "name a new folder with --output-dir"
    if is_job(directory):
        other = "add this run to the job in it with --append, or " + other
    raise UsageError(f"{directory} is not empty", hint=other)


def _show_job(words: list[str], cost: float | None, *, as_json: bool) -> None:
    """What is known of the job in a folder."""
    if len(words) != 1:
        raise UsageError(
            "watch takes a program after --, or the folder of a job",
            hint="torchscale watch -- torchrun --nproc-per-node 4 train.py",
        )
    from torchscale.features.watch.job.read import read_watch  # noqa: PLC0415
    from torchscale.features.watch.terminal import print_watch  # noqa: PLC0415
    from torchscale.read.folders import run_by_name  # noqa: PLC0415 - `--help` does not need it

    report = read_watch(run_by_name(Path(words[0])), cost)
    if as_json:
        print_json(report.model_dump_json(indent=1))
    else:
        print_watch(report, result_console())


def _default_folder(command: list[str]) -> Path:
    """``results/watch-train-20260101-120000``: named after the script."""
    name = program_name(command).removesuffix(".py")
    return Path("results") / f"watch-{name}-{datetime.now():%Y%m%d-%H%M%S}"
