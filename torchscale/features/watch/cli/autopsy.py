"""``torchscale autopsy``: why a job hangs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from torchscale.cli.output import TERMINAL, print_json, result_console
from torchscale.cli.parameters import READS, argument, option
from torchscale.errors import UsageError


def autopsy(
    pid: Annotated[
        int | None, argument("PID", "PID of torchrun or of one of its ranks.", min=1)
    ] = None,
    log_dir: Annotated[
        Path | None,
        option(
            "--log-dir DIR",
            "Directory with flight recorder files, with logs of the ranks, or of a launch.",
            **READS,
        ),
    ] = None,
    as_json: Annotated[bool, option("--json", "Print the verdict as JSON.")] = False,
) -> None:
    """Say why a distributed job makes no progress: which collective ranks wait in, and which rank
    did not call it.

    A running job is only read: no signal, no file; py-spy takes stacks where it is permitted. Dumps
    say more: they hold the collectives of every rank. Pickled dumps are read as plain values;
    nothing in them is executed. Of ranks without a dump the lines of NCCL's watchdog in their logs
    are read.

    Exit codes: 0 a verdict, also an unknown cause; 2 no such process, no ranks, or nothing to read.

    [bold]Examples[/bold]

    [cyan]torchscale autopsy 4711[/cyan]

    [cyan]torchscale autopsy --log-dir /tmp/traces --json[/cyan]

    [cyan]torchscale autopsy --log-dir results/run/cells/CELL/launch-0[/cyan]
    """
    if (pid is None) == (log_dir is None):
        given = "both were given" if pid is not None else "neither was given"
        raise UsageError(
            f"autopsy takes a PID or --log-dir DIR; {given}", hint="torchscale autopsy --help"
        )
    from torchscale.features.watch.hang.autopsy import autopsy_of_dumps, autopsy_of_process  # noqa: PLC0415
    from torchscale.features.watch.hang.terminal import print_autopsy  # noqa: PLC0415 - `--help` does not need it

    verdict = (
        autopsy_of_dumps(log_dir, TERMINAL) if log_dir else autopsy_of_process(pid or 0, TERMINAL)
    )
    if as_json:
        print_json(verdict.model_dump_json(indent=1))
    else:
        print_autopsy(verdict, result_console())
