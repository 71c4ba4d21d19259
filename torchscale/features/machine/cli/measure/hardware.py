"""``torchscale measure hardware``: peak rates of devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.copying import CopyOption
from torchscale.cli.options import JsonOption, OutputOption, Several, config_values, known_options
from torchscale.cli.output import TERMINAL, print_json, result_console
from torchscale.cli.parameters import option
from torchscale.cli.parsing import integers, listed
from torchscale.cli.sweep_output import SWEEP_TERMINAL
from torchscale.cli.workload import CountOption, DeviceOption, WorkloadOptions
from torchscale.util.optional import optional


def hardware(
    context: typer.Context,
    dtypes: Annotated[
        Several,
        option(
            "--dtype -d NAME,…",
            "fp64, fp32, tf32, fp16, bf16, fp8. Default: all that the device has",
        ),
    ] = None,
    sizes: Annotated[
        Several,
        option(
            "--size N,…", "Square matrices. Default: 1024 to 16384 on GPUs, 256 to 2048 on CPUs"
        ),
    ] = None,
    seconds: Annotated[float, option("--seconds", "Time spent on each figure.", min=0.01)] = 0.5,
    disk: Annotated[
        Path | None,
        option("--disk DIR", "Directory whose disk is written and read too.", show_default=False),
    ] = None,
    gpus: CountOption = None,
    device: DeviceOption = None,
    output_dir: OutputOption = None,
    copy_to: CopyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure peak rates: matmul per dtype, memory and copy bandwidth between host and devices,
    disk.

    Matrices hold random numbers: zeros would take less power and run faster. All devices measure at
    the same time, so that a slow device or a shared bus shows. The rates are the roofline of the
    training cells.

    Exit codes: 0 all well; 1 a launch failed; 2 wrong input; 3 this machine cannot.

    [bold]Examples[/bold]

    [cyan]torchscale measure hardware[/cyan]

    [cyan]torchscale measure hardware --dtype bf16 --size 8192 --seconds 2[/cyan]

    [cyan]torchscale measure hardware --disk /scratch -o results/demo[/cyan]
    """
    from torchscale.config.arguments import load_from_options  # noqa: PLC0415 - `--help` does not need it
    from torchscale.features.machine.measure import measure_hardware  # noqa: PLC0415
    from torchscale.report.formats.machine_export import ceilings_json  # noqa: PLC0415
    from torchscale.report.terminal.run import print_run  # noqa: PLC0415

    values = config_values(
        context,
        {"measure": ["hardware"]},
        {
            "--dtype": ("hardware.matmul_dtypes", listed(dtypes)),
            "--size": ("hardware.matmul_sizes", integers("--size", sizes)),
            "--seconds": ("hardware.seconds", seconds),
            "--disk": ("hardware.disk_path", optional(str, disk)),
            "--copy-to": ("export.storage", copy_to),
            **WorkloadOptions(gpus=gpus, device=device).values(context),
        },
    )
    experiment = load_from_options(
        "measure hardware", values, context.args, known_options=known_options(context)
    )
    outcome = measure_hardware(experiment, output_dir=output_dir, observer=SWEEP_TERMINAL)
    if as_json:
        print_json(ceilings_json(outcome.cells))
    else:
        print_run(outcome.run, outcome.directory, result_console())
        TERMINAL.results(outcome.directory)
    raise typer.Exit(outcome.exit_code)
