"""``torchscale measure collectives``: collectives over a range of sizes, as nccl-tests measures
them."""

from __future__ import annotations

from typing import Annotated

import typer

from torchscale.cli.command import as_typed
from torchscale.cli.copying import CopyOption
from torchscale.cli.options import (
    JsonOption,
    NodeArguments,
    OutputOption,
    Several,
    config_values,
    known_options,
)
from torchscale.cli.output import TERMINAL, print_json, result_console
from torchscale.cli.parameters import option
from torchscale.cli.parsing import counts, listed
from torchscale.cli.sweep_output import SWEEP_TERMINAL
from torchscale.cli.workload import CountOption, DeviceOption, WorkloadOptions
from torchscale.errors import UsageError
from torchscale.features.machine.collectives.terminal import print_collectives
from torchscale.measure.nodes import NodeOptions


def collectives(
    context: typer.Context,
    operations: Annotated[
        Several,
        option(
            "--op NAME,…",
            "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, send_recv "
            "(a ring), pairs (every two devices), barrier; several with commas. Default: all",
        ),
    ] = None,
    min_bytes: Annotated[str, option("--min-bytes -b BYTES", "Smallest size: 8, 1KiB …")] = "1KiB",
    max_bytes: Annotated[
        str | None,
        option("--max-bytes -e BYTES", "Largest size. Default: 1 GiB on GPUs, 64 MiB on CPUs"),
    ] = None,
    dtypes: Annotated[
        Several,
        option("--dtype -d NAME,…", "fp64, fp32, fp16, bf16, int64, int32, uint8. Default: fp32"),
    ] = None,
    iterations: Annotated[int, option("--iters", "Calls in a timed loop.", min=1)] = 20,
    warmup: Annotated[int, option("--warmup -w", "Calls before it.", min=1)] = 5,
    full: Annotated[
        bool,
        option(
            "--full",
            "All calls at every size, however long they take. Default: fewer calls at large sizes, "
            "at least 5, where a sweep would take longer than 40 s.",
        ),
    ] = False,
    algorithms: Annotated[
        Several, option("--algo NAME,…", "Ring, Tree, NVLS …: each is measured separately (NCCL).")
    ] = None,
    protocols: Annotated[
        Several, option("--proto NAME,…", "LL, LL128, Simple: each is measured separately (NCCL).")
    ] = None,
    link: Annotated[
        str | None,
        option("--link NAME", "What connects the devices, where it is not detected: nvlink4 …"),
    ] = None,
    gpus: CountOption = None,
    device: DeviceOption = None,
    *,
    nodes: NodeArguments,
    output_dir: OutputOption = None,
    copy_to: CopyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure collectives: time, algorithm and bus bandwidth over sizes, every element of every
    result checked.

    Sizes double from the smallest to the largest. Times are means over ranks of one timed loop, as
    in nccl-tests; p95 is over the same number of calls timed one by one, the slowest rank of each;
    spread is how much the slowest rank's mean exceeds the fastest's.

    With [bold]-o results/demo[/bold] the sweep joins the folder and the report of a benchmark.

    Exit codes: 0 all well; 1 a result was wrong, a launch failed or the link is slower than its
    specification; 2 wrong input; 3 fewer than two devices.

    [bold]Examples[/bold]

    [cyan]torchscale measure collectives[/cyan]

    [cyan]torchscale measure collectives --op all_reduce,all_gather -b 8 -e 1GiB --dtype
    fp32,bf16[/cyan]

    [cyan]torchscale measure collectives --op all_reduce --algo Ring,Tree,NVLS --proto Simple[/cyan]

    [cyan]torchscale measure collectives --gpus 16 --nnodes 2 --node-rank 0 --master
    10.0.0.1:29500 --token-file token[/cyan]
    """
    from torchscale.config.arguments import load_from_options  # noqa: PLC0415 - `--help` does not need it
    from torchscale.features.machine.measure import (  # noqa: PLC0415
        measure_collectives,
        plan_machine,
    )
    from torchscale.measure.nodes import join_nodes  # noqa: PLC0415
    from torchscale.report.formats.machine_export import ceilings_json  # noqa: PLC0415

    if counts("--gpus", gpus) == [1]:
        raise UsageError(
            f"{as_typed(context, '--gpus')} 1: a collective needs at least two devices"
        )
    values = config_values(
        context,
        {"measure": ["collectives"]},
        {
            "--op": ("collectives.operations", listed(operations)),
            "--min-bytes": ("collectives.min_bytes", min_bytes),
            "--max-bytes": ("collectives.max_bytes", max_bytes),
            "--dtype": ("collectives.dtypes", listed(dtypes)),
            "--iters": ("collectives.iterations", iterations),
            "--warmup": ("collectives.warmup", warmup),
            "--full": ("collectives.seconds", 0.0 if full else None),
            "--algo": ("collectives.algorithms", listed(algorithms)),
            "--proto": ("collectives.protocols", listed(protocols)),
            "--link": ("hardware.link", link),
            "--nnodes": ("launch.nodes", nodes.nodes),
            "--copy-to": ("export.storage", copy_to),
            **WorkloadOptions(gpus=gpus, device=device).values(context),
        },
    )
    experiment = load_from_options(
        "measure collectives", values, context.args, known_options=known_options(context)
    )
    experiment, node = join_nodes(experiment, NodeOptions(**vars(nodes)), TERMINAL)
    if node is not None and not node.is_leader:
        raise typer.Exit(node.follow(experiment, TERMINAL, plan_machine))
    outcome = measure_collectives(
        experiment, output_dir=output_dir, observer=SWEEP_TERMINAL, node=node
    )
    if as_json:
        print_json(ceilings_json(outcome.shown))
    else:
        print_collectives(outcome.shown, result_console())
        TERMINAL.results(outcome.directory)
    raise typer.Exit(outcome.exit_code)
