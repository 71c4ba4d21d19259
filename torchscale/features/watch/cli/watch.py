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
from torchscale.cli.copying import CopyOption, copy_results
from torchscale.cli.options import JsonOption
from torchscale.cli.output import TERMINAL, is_quiet, message_console, print_json
from torchscale.cli.parameters import option
from torchscale.cli.parsing import check_price, listed, parse_seconds
from torchscale.errors import ExitCode, ProgramExit, TorchscaleError, UsageError
from torchscale.features.watch.shown_job import show_job
from torchscale.util.roles import chosen_role, role_folder
from torchscale.util.text import program_name

if TYPE_CHECKING:
    from torchscale.features.watch.fail_on import FailingKinds
    from torchscale.features.watch.job.run import Watched
    from torchscale.schema.watch.report import WatchReport

app = typer.Typer(
    cls=WithProgram,
    invoke_without_command=True,
    subcommand_metavar="[RUN] [-- PROGRAM]",
)

_FailOnOption = Annotated[
    list[str] | None,
    option(
        "--fail-on KIND[,KIND…]",
        "Exit code 1 where the program's is 0 and one of these was found with medium or high "
        "confidence: kinds of findings, such as straggler, hang, any.",
    ),
]
_CostOption = Annotated[
    float | None,
    option(
        "--cost DOLLARS",
        "Price of a device and hour: what each part of the wall time cost, and findings.",
    ),
]


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
            "Print findings as they appear, and now and then a line on how the job goes. Default: "
            "where messages go to a terminal.",
        ),
    ] = None,
    fail_on: _FailOnOption = None,
    keep_events: Annotated[
        bool, option("--keep-events", "Keep the moments of all ranks, up to 24 MB each.")
    ] = False,
    stall: Annotated[
        str,
        option(
            "--stall TIME", "Look why the job hangs after so long without a step or a collective."
        ),
    ] = "2m",
    cost: _CostOption = None,
    timing: Annotated[
        bool,
        option(
            "--timing",
            "On GPUs: have torch time each collective, so that the rank which the others wait "
            "for is known.",
        ),
    ] = False,
    role: Annotated[
        str | None,
        option(
            "--role NAME",
            "What the program does in a job of several, such as trainer and rollout, which share "
            "--output-dir. Default: TORCHSCALE_WATCH_ROLE, else none.",
        ),
    ] = None,
    copy_to: CopyOption = None,
    follow: Annotated[int | None, typer.Option("--follow", hidden=True)] = None,
    follow_name: Annotated[str | None, typer.Option("--follow-name", hidden=True)] = None,
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

    Exit codes: those of the program; 1 where --fail-on found something; 2 wrong input; 3 the program
    cannot be started.

    [bold]Examples[/bold]

    [cyan]torchscale watch -- torchrun --standalone --nproc-per-node 4 train.py[/cyan]

    [cyan]torchscale watch --timing -- torchrun --nproc-per-node 8 train.py[/cyan]

    [cyan]torchscale watch -o results/tuesday -- python train.py --epochs 3[/cyan]

    [cyan]torchscale watch --append -o results/big-job -- srun torchrun … train.py[/cyan]

    [cyan]torchscale watch --role rollout -o results/rlhf -- python rollout.py[/cyan]

    [cyan]torchscale watch --fail-on straggler,input_pipeline,hang -- python train.py[/cyan]

    [cyan]torchscale watch results/tuesday --cost 2.50[/cyan]
    """
    check_price(cost)
    command: list[str] | None = context.meta.get(COMMAND_KEY)
    if follow is not None:
        from torchscale.features.watch.job.follow_ranks import follow_ranks  # noqa: PLC0415 - `--help` does not need it
        from torchscale.features.watch.job.keep import keep_run  # noqa: PLC0415

        folder = Path(words_of(context)[0])
        followed = follow_ranks(folder, follow, name=follow_name, role=role or "")
        if followed is not None:
            keep_run(followed)
        return
    from torchscale.features.watch.fail_on import parse_fail_on  # noqa: PLC0415 - `--help` does not need it

    fails = parse_fail_on(None if fail_on is None else listed(fail_on))
    if command is None:
        reports = show_job(words_of(context), cost, as_json=as_json)
        for report in reports:
            _say_why(fails, report)
        if any(map(fails.found, reports)):
            raise typer.Exit(ExitCode.FAILED)
        return
    if not command:
        raise UsageError("nothing follows --", hint="torchscale watch -- python train.py")
    from torchscale.features.watch.hang.terminal import print_hang  # noqa: PLC0415
    from torchscale.features.watch.job.keep import detecting, keep_run  # noqa: PLC0415
    from torchscale.features.watch.job.live import LiveLines  # noqa: PLC0415
    from torchscale.features.watch.job.relay import Relay  # noqa: PLC0415
    from torchscale.features.watch.job.run import WatchRequest, run_program  # noqa: PLC0415

    directory = output_dir if output_dir is not None else _default_folder(command)
    chosen = _role_of(role, is_named=output_dir is not None)
    directory = role_folder(directory, chosen)
    _check_folder(directory, append=append, is_named=output_dir is not None)
    is_live = (live if live is not None else _is_terminal()) and not is_quiet()
    lines = LiveLines(_say, on_terminal=_is_terminal())
    request = WatchRequest(
        command,
        directory,
        appends=append,
        on_note=_note,
        on_judged=lines.judged if is_live else lambda *_: None,
        on_hang=lambda verdict, seconds: print_hang(verdict, seconds, message_console()),
        stall_seconds=parse_seconds("--stall", stall),
        keeps_events=keep_events,
        price=cost,
        timing=timing,
        role=chosen,
    )
    with Relay().opened() as relay:
        program = run_program(request, relay)
        has_failed = False
        try:
            with detecting() as detection:
                with TERMINAL.status("The program has ended; judging what was collected"):
                    watched = program.watched()
                if watched is not None:
                    has_failed = bool(fails.found(watched.report))
                    _show(watched, as_json=as_json)
                    with TERMINAL.status("Writing the run for `torchscale report`"):
                        problem = keep_run(watched, detection)
                    if problem:
                        TERMINAL.note(f"note: no run for `torchscale report`: {problem}")
                    _say_why(fails, watched.report)
                    has_failed |= not copy_results(watched.directory, copy_to)
        except Exception as error:  # noqa: BLE001 - the exit code is the program's, whatever fails here
            _note(f"no summary: {getattr(error, 'message', repr(error))}")
    raise ProgramExit(program.exit_code or int(has_failed))


def _say_why(fails: FailingKinds, report: WatchReport) -> None:
    """What of it was found, and what was not judged."""
    found = fails.found(report)
    if found:
        TERMINAL.note(f"Failed by --fail-on: {'; '.join(found)}")
    for unjudged in fails.unjudged(report):
        _note(f"--fail-on: not judged: {unjudged}")


def _say(text: str) -> None:
    """A line between those of the program."""
    from torchscale.features.watch.whole_lines import write_line  # noqa: PLC0415 - `--help` does not need it

    if sys.stderr is not None:
        write_line(text, sys.stderr)


def _show(watched: Watched, *, as_json: bool) -> None:
    """Print what is known of a program that has ended."""
    from torchscale.features.watch.terminal import print_watch  # noqa: PLC0415 - `--help` does not need it

    report = watched.report
    if as_json:
        print_json(report.model_dump_json(indent=1))
        return
    print_watch(report, message_console())
    if _is_written(watched.directory, report.seconds):
        TERMINAL.note(f"Wrote {os.path.relpath(watched.directory)}/watch.json")


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


def _role_of(role: str | None, *, is_named: bool) -> str:
    """The role; programs of one job have to name its folder."""
    chosen = chosen_role(role)
    if chosen and not is_named:
        raise UsageError(
            f"the role {chosen} is one of a job's, whose programs share a folder",
            hint=f"torchscale watch --role {chosen} -o results/tuesday -- PROGRAM",
        )
    return chosen


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


def _default_folder(command: list[str]) -> Path:
    """``results/watch-train-20260101-120000``: named after the script."""
    name = program_name(command).removesuffix(".py")
    return Path("results") / f"watch-{name}-{datetime.now():%Y%m%d-%H%M%S}"
