"""``torchscale comm``: collectives over a range of sizes, as nccl-tests does it, on whatever backend is there."""

from __future__ import annotations

from typing import Annotated

import typer

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
from torchscale.errors import ExitCode

Several = list[str] | None


def comm(
    context: typer.Context,
    operations: Annotated[
        Several,
        typer.Option(
            "--op",
            help="all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, send_recv (a ring), pairs "
            "(every two devices), barrier; several with commas. Default: all",
        ),
    ] = None,
    min_bytes: Annotated[str, typer.Option("--min-bytes", "-b", help="Smallest size: 8, 1KiB …")] = "1KiB",
    max_bytes: Annotated[
        str | None,
        typer.Option("--max-bytes", "-e", help="Largest size. Default: 1 GiB on GPUs, 64 MiB on CPUs"),
    ] = None,
    dtypes: Annotated[
        Several, typer.Option("--dtype", "-d", help="fp64, fp32, fp16, bf16, int64, int32, uint8. Default: fp32")
    ] = None,
    iterations: Annotated[int, typer.Option("--iters", min=1, help="Calls of a timed loop.")] = 20,
    warmup: Annotated[int, typer.Option("--warmup", "-w", min=1, help="Calls before it.")] = 5,
    algorithms: Annotated[
        Several, typer.Option("--algo", help="Ring, Tree, NVLS …: each is measured by itself (NCCL).")
    ] = None,
    protocols: Annotated[
        Several, typer.Option("--proto", help="LL, LL128, Simple: each is measured by itself (NCCL).")
    ] = None,
    link: Annotated[
        str | None, typer.Option("--link", help="What connects the devices, where it is not detected: nvlink4 …")
    ] = None,
    gpus: CountOption = None,
    device: DeviceOption = None,
    output_dir: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure collectives: time, algorithm and bus bandwidth over sizes, every element of every result checked.

    Sizes double from the smallest to the largest. Times are means over ranks of one timed loop, as in nccl-tests; p95
    is of as many calls timed one by one, the slowest rank of each; spread is by how much the slowest rank's mean
    exceeds the fastest's.

    Into the folder of a benchmark ([bold]-o results/demo[/bold]) the sweep joins its report.

    Exit codes: 0 all well; 1 a result was wrong, a launch failed or the link falls short of what it should carry; 2
    wrong input; 3 fewer than two devices.

    [bold]Examples[/bold]

    [cyan]torchscale comm[/cyan]

    [cyan]torchscale comm --op all_reduce,all_gather -b 8 -e 1GiB --dtype fp32,bf16[/cyan]

    [cyan]torchscale comm --op all_reduce --algo Ring,Tree,NVLS --proto Simple[/cyan]
    """
    asked = experiment_of(
        context,
        "comm",
        [
            "--measure=[collectives]",
            *override("collectives.operations", listed(operations or [])),
            *override("collectives.min_bytes", min_bytes),
            *override("collectives.max_bytes", max_bytes),
            *override("collectives.dtypes", listed(dtypes or [])),
            *override("collectives.iterations", iterations),
            *override("collectives.warmup", warmup),
            *override("collectives.algorithms", listed(algorithms or [])),
            *override("collectives.protocols", listed(protocols or [])),
            *override("hardware.link", link),
            *override("gpu_counts", [gpus] if gpus else None),
            *override("device", device),
        ],
    )
    machine = look()
    path = output_dir or default_folder("comm")
    experiment, plan = planned(asked, machine, path)
    summary, stop = measure(experiment, plan, machine, path)
    found = [one for one in of_plan(summary.collectives, plan) if not one.cell.logs_choices]
    from torchscale.report.ceiling_console import print_collectives  # noqa: PLC0415 - `--help` does not need it

    show(found, path, print_collectives, as_json=as_json)
    short = any(one.verdict is not None and one.verdict.fits is False for one in found)
    code = exit_code(of_plan(summary.collectives, plan), stop)
    raise typer.Exit(ExitCode.FAILED if short and code is ExitCode.OK else code)
