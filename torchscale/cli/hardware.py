"""``torchscale hardware``: the ceilings of devices."""

from __future__ import annotations

from pathlib import Path
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


def hardware(
    context: typer.Context,
    dtypes: Annotated[
        list[str] | None,
        typer.Option("--dtype", "-d", help="fp64, fp32, tf32, fp16, bf16, fp8. Default: all that the device has"),
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option("--size", help="Square matrices. Default: 1024 to 16384 on GPUs, 256 to 2048 on CPUs"),
    ] = None,
    seconds: Annotated[float, typer.Option("--seconds", min=0.01, help="Time spent on each figure.")] = 0.5,
    disk: Annotated[
        Path | None, typer.Option("--disk", help="Directory whose disk is written and read too.", show_default=False)
    ] = None,
    gpus: CountOption = None,
    device: DeviceOption = None,
    output_dir: OutputOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure the ceilings: matrix products per dtype, memory, copies between host and devices, a disk.

    Matrices hold random numbers: zeros would take less power and run faster. Every device measures at the same time, so
    that a slow one and a shared bus are seen. These ceilings make the roofline that training cells are held against.

    Exit codes: 0 all well; 1 a launch failed; 2 wrong input; 3 this machine cannot.

    [bold]Examples[/bold]

    [cyan]torchscale hardware[/cyan]

    [cyan]torchscale hardware --dtype bf16 --size 8192 --seconds 2[/cyan]

    [cyan]torchscale hardware --disk /scratch -o results/demo[/cyan]
    """
    asked = experiment_of(
        context,
        "hardware",
        [
            "--measure=[hardware]",
            *override("hardware.matmul_dtypes", listed(dtypes or [])),
            *override("hardware.matmul_sizes", listed(sizes or [])),
            *override("hardware.seconds", float(seconds)),
            *override("hardware.disk_path", None if disk is None else f"'{disk}'"),
            *override("gpu_counts", [gpus] if gpus else None),
            *override("device", device),
        ],
    )
    machine = look()
    path = output_dir or default_folder("hardware")
    experiment, plan = planned(asked, machine, path)
    summary, stop = measure(experiment, plan, machine, path)
    found = of_plan(summary.hardware, plan)
    from torchscale.report.ceiling_console import print_hardware  # noqa: PLC0415 - `--help` does not need it

    show(found, path, print_hardware, as_json=as_json)
    raise typer.Exit(exit_code(found, stop))
