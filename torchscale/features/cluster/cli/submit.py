"""``torchscale submit``: a benchmark as a job of Slurm or Kubernetes."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from typer.models import OptionInfo

from torchscale.cli.options import ConfigArgument, config_arguments, known_options
from torchscale.cli.output import TERMINAL, print_json
from torchscale.config.choices import SubmitEngine

_SLURM = "Slurm"
_KUBERNETES = "Kubernetes"
Text = str | None


def _option(scheduler: str, name: str, metavar: str, text: str) -> OptionInfo:
    """An option that one scheduler alone knows."""
    option: OptionInfo = typer.Option(name, metavar=metavar, help=f"{scheduler}: {text}")
    return option


def submit(
    context: typer.Context,
    config: ConfigArgument = None,
    engine: Annotated[
        SubmitEngine,
        typer.Option(
            "--engine", help="Kubernetes with Kubeflow Trainer, or without it (kubernetes-job)."
        ),
    ] = SubmitEngine.SLURM,
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", help="Nodes of the job.")] = 1,
    time: Annotated[
        str | None,
        typer.Option(
            "--time", metavar="H:M:S", help="Time limit. Default: 1:00:00 on Slurm, else none."
        ),
    ] = None,
    gpus_per_node: Annotated[
        int | None,
        typer.Option("--gpus-per-node", metavar="N", help="GPUs to ask for on each node."),
    ] = None,
    cpus_per_task: Annotated[
        int | None,
        typer.Option(
            "--cpus-per-task", metavar="N", help="Cores to ask for on each node (one task a node)."
        ),
    ] = None,
    image: Annotated[
        str | None,
        typer.Option(
            "--image", "--container", metavar="IMAGE", help="Run in this image (on Slurm: pyxis)."
        ),
    ] = None,
    job_name: Annotated[
        str | None,
        typer.Option("--job-name", metavar="NAME", help="Default: torchscale-<experiment_name>"),
    ] = None,
    output_dir: Annotated[
        Path | None,
        typer.Option(
            "--output-dir",
            "-o",
            metavar="DIR",
            help="Run folder, on a disk that all nodes see. Default: results/<experiment_name>; "
            "on Kubernetes a folder in the claim, <experiment_name>",
        ),
    ] = None,
    account: Annotated[Text, _option(_SLURM, "--account", "NAME", "Account to charge.")] = None,
    partition: Annotated[Text, _option(_SLURM, "--partition", "NAME", "Partition.")] = None,
    qos: Annotated[Text, _option(_SLURM, "--qos", "NAME", "Quality of service.")] = None,
    sbatch_options: Annotated[
        list[str] | None,
        _option(
            _SLURM, "--sbatch-option", "NAME=VALUE", "Any other option of sbatch; may be repeated."
        ),
    ] = None,
    results_claim: Annotated[
        Text,
        _option(
            _KUBERNETES,
            "--results-claim",
            "NAME",
            "PersistentVolumeClaim for the results; required.",
        ),
    ] = None,
    namespace: Annotated[
        Text, _option(_KUBERNETES, "--namespace", "NAME", "Default: kubectl's.")
    ] = None,
    token_secret: Annotated[
        Text,
        _option(
            _KUBERNETES,
            "--token-secret",
            "NAME",
            "Secret with the key token. Default: torchscale-token",
        ),
    ] = None,
    gpu_resource: Annotated[
        Text,
        _option(
            _KUBERNETES, "--gpu-resource", "NAME", "What GPUs are called. Default: nvidia.com/gpu"
        ),
    ] = None,
    rdma: Annotated[
        list[str] | None,
        _option(
            _KUBERNETES,
            "--rdma",
            "NAME[=N]",
            "RDMA resource of each node; adds IPC_LOCK. May be repeated.",
        ),
    ] = None,
    shm_size: Annotated[
        Text,
        _option(
            _KUBERNETES,
            "--shm-size",
            "SIZE",
            "Bound of /dev/shm: 64Gi. Default: the node's memory.",
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        _option(_KUBERNETES, "--env", "NAME=VALUE", "Variable of the pods; may be repeated."),
    ] = None,
    node_selector: Annotated[
        list[str] | None,
        _option(
            _KUBERNETES,
            "--node-selector",
            "LABEL=VALUE",
            "Label that nodes must have; may be repeated.",
        ),
    ] = None,
    run_as_user: Annotated[
        int | None,
        _option(_KUBERNETES, "--run-as-user", "UID", "User and group of processes and results."),
    ] = None,
    restarts: Annotated[
        int | None,
        _option(
            _KUBERNETES,
            "--restarts",
            "N",
            "how often a node may start again (kubernetes-job). Default: 3",
        ),
    ] = None,
    runtime: Annotated[
        Text,
        _option(
            _KUBERNETES,
            "--runtime",
            "NAME",
            "ClusterTrainingRuntime (kubernetes). Default: torch-distributed",
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option(
            "--wait", help="Wait for the job's end, and leave with the benchmark's exit code."
        ),
    ] = False,
    print_only: Annotated[
        bool,
        typer.Option(
            "--print", help="Print the script or the manifests; submit and write nothing."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the job, or with --print its text, as JSON.")
    ] = False,
) -> None:
    """Submit a benchmark to Slurm or Kubernetes: the config becomes one job that runs it over all
    its nodes.

    [bold]--key.sub=value[/bold] changes single keys of the config. A job that is stopped and starts
    again resumes. See `torchscale docs nodes` (Slurm) and `torchscale docs kubernetes`.

    [bold]Examples[/bold]

    [cyan]torchscale submit my_matrix.yaml --nodes 4 --gpus-per-node 8 --time 2:00:00 --partition
    gpu --print[/cyan]

    [cyan]torchscale submit my_matrix.yaml --nodes 4 --gpus-per-node 8 --sbatch-option exclusive
    --wait[/cyan]

    [cyan]torchscale submit my_matrix.yaml --engine kubernetes --image IMAGE --results-claim results
    --nodes 4[/cyan]

    [cyan]torchscale submit my_matrix.yaml --engine kubernetes-job --image IMAGE --results-claim
    results --print[/cyan]
    """
    from torchscale.config.arguments import load_from_arguments  # noqa: PLC0415 - `--help` does not need it
    from torchscale.features.cluster.submit import run  # noqa: PLC0415

    arguments = config_arguments(context, config)
    experiment = load_from_arguments(arguments, known_options=known_options(context)).experiment
    options = run.SubmitOptions(
        run.JobOptions(nodes, time, gpus_per_node, cpus_per_task, image, job_name),
        run.SlurmOptions(account, partition, qos, tuple(sbatch_options or ())),
        run.KubernetesOptions(
            namespace=namespace,
            results_claim=results_claim,
            token_secret=token_secret,
            gpu_resource=gpu_resource,
            rdma=tuple(rdma or ()),
            shm_size=shm_size,
            env=tuple(env or ()),
            node_selector=tuple(node_selector or ()),
            run_as_user=run_as_user,
        ),
        run.TrainJobOptions(runtime),
        run.IndexedJobOptions(restarts),
    )
    run.check_carried(experiment)
    prepared = run.prepare(engine, experiment, options, output_dir)
    for text in run.warnings_of(experiment, options.job):
        TERMINAL.note(f"warning: {text}")
    if print_only:
        for text in prepared.by_hand:
            TERMINAL.note(text)
        rendered = prepared.render()
        if as_json:
            print_json(json.dumps({"engine": engine.value, "job": rendered}))
        else:
            typer.echo(rendered, nl=False)
        return
    job = prepared.submit()
    if as_json:
        print_json(json.dumps(asdict(job)))
    else:
        typer.echo(job.job_id)
    TERMINAL.note(f"Submitted job {job.job_id}. Results: {job.results}. Log: {job.log}")
    if wait:
        raise typer.Exit(run.follow(prepared, job, TERMINAL.note))
