"""``torchscale bisect``: which of several changes made a command slower."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from torchscale.cli.command import (
    COMMAND_KEY,
    WithProgram,
    overrides_of,
    same_command,
    words_of,
)
from torchscale.cli.options import JsonOption
from torchscale.cli.output import TERMINAL, print_json, result_console
from torchscale.cli.parameters import READS, option
from torchscale.cli.parsing import parse_seconds, share
from torchscale.errors import UsageError
from torchscale.features.bisect.cli.options import MetricOptions
from torchscale.util.optional import optional

if TYPE_CHECKING:
    from torchscale.features.bisect.outcome import BisectOutcome, BisectRequest
    from torchscale.features.bisect.question import Question


class _TwoStates(WithProgram):
    """A group whose words are requirements, which may be addresses themselves."""

    reads_words = False


app = typer.Typer(
    cls=_TwoStates,
    invoke_without_command=True,
    subcommand_metavar="[GOOD BAD] -- COMMAND",
)


@dataclass(frozen=True)
class _EnvironmentOptions:
    """What environments are made of."""

    common: Annotated[
        list[str] | None,
        option("--with REQUIREMENTS", "A list or file that every environment has too."),
    ] = None
    wheels: Annotated[
        list[Path] | None, option("--wheels DIR", "Install from this directory of wheels.", **READS)
    ] = None
    index: Annotated[
        str | None,
        option(
            "--index URL",
            "Install from this index; default for that of pip. Without, no network is used.",
        ),
    ] = None


@dataclass(frozen=True)
class _BoundOptions:
    """How sure an answer is, and what it may take."""

    at_least: Annotated[
        str | None, option("--at-least SHARE", "The smallest slowdown that matters. Default: 3%")
    ] = None
    error: Annotated[str, option("--error SHARE", "Probability of a wrong answer, at most.")] = "5%"
    max_launches: Annotated[
        int, option("--max-launches N", "Launches that count.", min=6, max=1000)
    ] = 200
    budget: Annotated[str | None, option("--budget TIME", "Wall time of new launches.")] = None
    launch_seconds: Annotated[
        str, option("--launch-seconds TIME", "Steps measured in each launch.")
    ] = "5s"
    timeout: Annotated[str, option("--timeout TIME", "Longest launch.")] = "30m"
    build_timeout: Annotated[str, option("--build-timeout TIME", "Longest build.")] = "30m"


@app.callback()
def bisect(
    context: typer.Context,
    versions: Annotated[
        str | None,
        option(
            "--versions PACKAGE=V1,V2,…",
            "In place of GOOD and BAD: versions of a package in order, the good one first.",
        ),
    ] = None,
    *,
    environments: _EnvironmentOptions,
    figure: MetricOptions,
    bounds: _BoundOptions,
    cache: Annotated[
        Path | None,
        option("--cache DIR", "Where environments are built. Default: ~/.cache/torchscale/bisect"),
    ] = None,
    output_dir: Annotated[
        Path | None,
        option(
            "--output-dir -o DIR",
            "Folder of the launches. Default: results/bisect-<program>-<digest>",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        option("--dry-run", "Show environments and expected launches; build and launch nothing."),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Find which change made a command slower, or changed its loss: versions of packages, commits of
    your code, or environment variables.

    The change may be one of them, or only several together.

    GOOD and BAD are two lists of requirements (torch==2.9,numpy==2.1) or requirements files, two
    commits (git:v1.0 git:main), or two sets of variables (env:NCCL_ALGO=Ring env:NCCL_ALGO=Tree).
    Every environment is built once, in a cache; yours is never changed. Launches of all environments
    in question alternate, and are repeated until one answer is left. Where one package differs, its
    versions in between are searched; where several things differ, their combinations.

    The same command continues what was interrupted.

    Exit codes: 0 answered, "not slower" and "not changed" too; 1 an end cannot be built or fails; 2 wrong input; 3 no
    answer: launches or time ran out; 130 interrupted.

    [bold]Examples[/bold]

    [cyan]torchscale bisect torch==2.9.0 torch==2.10.0 --index default -- python train.py[/cyan]

    [cyan]torchscale bisect old.txt new.txt --wheels wheels -- torchrun --nproc-per-node 8 train.py[/cyan]

    [cyan]torchscale bisect git:v1.0 git:main -- python train.py[/cyan]

    [cyan]torchscale bisect env:NCCL_ALGO=Ring env:NCCL_ALGO=Tree,NCCL_PROTO=LL -- torchrun … train.py[/cyan]

    [cyan]torchscale bisect --versions demo=1.0,1.1,1.2 --wheels wheels --metric wall -- python job.py[/cyan]

    [cyan]torchscale bisect torch==2.9.0 torch==2.10.0 --index default --metric loss -- python train.py[/cyan]
    """
    from torchscale.features.bisect.cell import is_benchmark  # noqa: PLC0415
    from torchscale.features.bisect.environments.installer import Sources  # noqa: PLC0415 - `--help` does not need it
    from torchscale.features.bisect.outcome import BisectRequest, default_cache  # noqa: PLC0415
    from torchscale.features.bisect.requirements import read_requirements  # noqa: PLC0415
    from torchscale.features.bisect.search import Limits  # noqa: PLC0415

    _refuse_unknown(context)
    if figure.asks_for_change and bounds.at_least is not None:
        raise UsageError("--at-least is about slowdowns; --tolerance T is the change that matters")
    found = tuple(environments.wheels or ())
    for directory in found:
        if not directory.is_dir():
            raise UsageError(f"--wheels {directory}: no such directory")
    request = BisectRequest(
        question=_question(words_of(context), versions, found),
        command=_command(context),
        metric=figure.checked(),
        rule=figure.rule(),
        sources=Sources(
            found,
            environments.index,
            tuple(line for side in environments.common or () for line in read_requirements(side)),
            with_torchscale=is_benchmark(_command(context)),
        ),
        cache=cache or default_cache(),
        directory=output_dir,
        limits=Limits(
            alpha=_positive("--error", bounds.error),
            at_least=_positive("--at-least", bounds.at_least or "3%"),
            most_launches=bounds.max_launches,
        ),
        budget_seconds=optional(partial(parse_seconds, "--budget"), bounds.budget),
        timeout_seconds=parse_seconds("--timeout", bounds.timeout),
        launch_seconds=parse_seconds("--launch-seconds", bounds.launch_seconds),
        build_seconds=parse_seconds("--build-timeout", bounds.build_timeout),
    )
    if dry_run:
        _show_plan(request, as_json=as_json)
        return
    from torchscale.features.bisect import run  # noqa: PLC0415

    outcome = run.bisect(request, observer=TERMINAL, on_line=TERMINAL.note)
    from torchscale.util.redaction import redact_arguments  # noqa: PLC0415

    program = shlex.join(redact_arguments(request.command))
    again = f"{same_command(context, without=('--json',))} -- {program}"
    _show(outcome, again, as_json=as_json)
    if any(entry.state == "failed" for entry in outcome.state.launches):
        TERMINAL.note(f"What launches printed: {request.folder}/launches")
    if outcome.interrupted:
        TERMINAL.note(f"Interrupted. The same command continues: {again}")
    raise typer.Exit(outcome.exit_code)


def _question(words: list[str], versions: str | None, wheels: tuple[Path, ...]) -> Question:
    from torchscale.features.bisect.question import ask, ask_versions  # noqa: PLC0415

    if versions is not None:
        if words:
            raise UsageError(f"--versions names both ends; {words[0]} is one too many")
        return ask_versions(versions)
    if len(words) != 2:
        raise UsageError(
            f"bisect takes GOOD and BAD before --, and there are {len(words)}",
            hint="torchscale bisect torch==2.9.0 torch==2.10.0 --index default -- python train.py",
        )
    return ask(words[0], words[1], wheels=wheels, directory=Path())


def _command(context: typer.Context) -> tuple[str, ...]:
    from torchscale.features.bisect.cell import check_benchmark  # noqa: PLC0415

    command = context.meta.get(COMMAND_KEY)
    if not command:
        raise UsageError(
            "nothing follows --", hint="write the command to launch there: -- python train.py"
        )
    check_benchmark(command)
    return tuple(command)


def _positive(option: str, text: str) -> float:
    value = share(option, text)
    if not value > 0:
        raise UsageError(f"{option} {text}: expected a share above 0")
    return value


def _refuse_unknown(context: typer.Context) -> None:
    unknown = overrides_of(context)
    if unknown:
        raise UsageError(f"no such option: {unknown[0]}", hint="torchscale bisect --help")


def _show_plan(request: BisectRequest, *, as_json: bool) -> None:
    from torchscale.features.bisect.plan import plan_of  # noqa: PLC0415
    from torchscale.features.bisect.tables import print_plan  # noqa: PLC0415

    with TERMINAL.status("Playing bisections on made-up noise"):
        plan = plan_of(request)
    if as_json:
        print_json(plan.model_dump_json(indent=1))
    else:
        print_plan(plan, result_console())


def _show(outcome: BisectOutcome, again: str, *, as_json: bool) -> None:
    from torchscale.features.bisect.tables import print_bisection  # noqa: PLC0415

    result = outcome.export(again)
    if as_json:
        print_json(result.model_dump_json(indent=1))
    else:
        print_bisection(result, result_console())
