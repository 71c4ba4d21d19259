"""``torchscale submit``: a benchmark as a job of Slurm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from torchscale.cli.options import ConfigArgument, known_options
from torchscale.cli.output import TERMINAL


def submit(
    context: typer.Context,
    config: ConfigArgument = None,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="Nodes of the job.")] = 1,
    time: Annotated[str, typer.Option("--time", metavar="H:M:S", help="Time limit.")] = "1:00:00",
    gpus_per_node: Annotated[
        int | None, typer.Option("--gpus-per-node", metavar="N", help="GPUs to ask for on each node.")
    ] = None,
    cpus_per_task: Annotated[
        int | None,
        typer.Option("--cpus-per-task", metavar="N", help="Cores to ask for on each node (one task a node)."),
    ] = None,
    account: Annotated[str | None, typer.Option("--account", metavar="NAME", help="Account to charge.")] = None,
    partition: Annotated[str | None, typer.Option("--partition", metavar="NAME", help="Partition.")] = None,
    qos: Annotated[str | None, typer.Option("--qos", metavar="NAME", help="Quality of service.")] = None,
    container: Annotated[
        str | None, typer.Option("--container", metavar="IMAGE", help="Run in this image (pyxis: --container-image).")
    ] = None,
    job_name: Annotated[
        str | None, typer.Option("--job-name", metavar="NAME", help="Default: torchscale-<experiment_name>")
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            "-o",
            metavar="DIR",
            help="Run folder, on a disk that all nodes see. Default: results/<experiment_name>",
        ),
    ] = None,
    sbatch_options: Annotated[
        list[str] | None,
        typer.Option("--sbatch-option", metavar="KEY=VALUE", help="Any other option of sbatch; may be repeated."),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for the job's end, and leave with the benchmark's exit code.")
    ] = False,
    print_only: Annotated[bool, typer.Option("--print", help="Print the script; submit and write nothing.")] = False,
) -> None:
    """Submit a benchmark to Slurm: the config becomes one batch script that runs it over all nodes of the job.

    [bold]--key.sub=value[/bold] changes single keys of the config. The time limit ends the sweep cleanly; the job goes
    back to the queue and resumes. See `torchscale docs nodes`.

    [bold]Examples[/bold]

    [cyan]torchscale submit my_matrix.yaml --nodes 4 --gpus-per-node 8 --time 2:00:00 --partition gpu --print[/cyan]

    [cyan]torchscale submit my_matrix.yaml --nodes 4 --gpus-per-node 8 --sbatch-option exclusive --wait[/cyan]
    """
    from torchscale.config.arguments import load_from_arguments  # noqa: PLC0415 - `--help` does not need it
    from torchscale.run import submit as run  # noqa: PLC0415

    arguments = [*([config] if config is not None else []), *context.args]
    experiment = load_from_arguments(arguments, known_options=known_options(context)).experiment
    options = run.SlurmOptions(
        nodes=nodes,
        time=time,
        gpus_per_node=gpus_per_node,
        cpus_per_task=cpus_per_task,
        account=account,
        partition=partition,
        qos=qos,
        container=container,
        job_name=job_name,
        sbatch_options=tuple(sbatch_options or ()),
    )
    if print_only:
        typer.echo(run.slurm_script(experiment, options, output_dir), nl=False)
        return
    job = run.submit_to_slurm(experiment, options, output_dir)
    typer.echo(job.job_id)
    TERMINAL.note(f"Submitted job {job.job_id}. Results: {job.directory}. Log: {job.log}")
    if wait:
        raise typer.Exit(run.follow(job, TERMINAL.note))
