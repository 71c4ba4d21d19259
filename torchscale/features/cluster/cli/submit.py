"""``torchscale submit``: a benchmark as a job of Slurm or Kubernetes."""

from __future__ import annotations

import inspect
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from torchscale.cli.options import ConfigArgument, config_arguments, known_options
from torchscale.cli.output import TERMINAL, print_json
from torchscale.cli.parameters import option
from torchscale.config.choices import SubmitEngine

Text = str | None
G = TypeVar("G")


@dataclass(frozen=True)
class _JobOptions:
    """Of the job, whatever the scheduler."""

    nodes: Annotated[int, option("--nodes N", "Nodes of the job.")] = 1
    time: Annotated[
        str | None, option("--time H:M:S", "Time limit. Default: 1:00:00 on Slurm, else none.")
    ] = None
    gpus_per_node: Annotated[
        int | None, option("--gpus-per-node N", "GPUs to ask for on each node.")
    ] = None
    cpus_per_task: Annotated[
        int | None, option("--cpus-per-task N", "Cores to ask for on each node (one task a node).")
    ] = None
    image: Annotated[
        str | None, option("--image --container IMAGE", "Run in this image (on Slurm: pyxis).")
    ] = None
    job_name: Annotated[
        str | None, option("--job-name NAME", "Default: torchscale-<experiment_name>")
    ] = None


@dataclass(frozen=True)
class _SlurmOptions:
    """What Slurm alone knows."""

    account: Annotated[Text, option("--account NAME", "Slurm: Account to charge.")] = None
    partition: Annotated[Text, option("--partition NAME", "Slurm: Partition.")] = None
    qos: Annotated[Text, option("--qos NAME", "Slurm: Quality of service.")] = None
    sbatch_option: Annotated[
        list[str] | None,
        option("--sbatch-option NAME=VALUE", "Slurm: Any other option of sbatch; may be repeated."),
    ] = None


@dataclass(frozen=True)
class _KubernetesOptions:
    """What Kubernetes alone knows."""

    results_claim: Annotated[
        Text,
        option(
            "--results-claim NAME", "Kubernetes: PersistentVolumeClaim for the results; required."
        ),
    ] = None
    namespace: Annotated[Text, option("--namespace NAME", "Kubernetes: Default: kubectl's.")] = None
    token_secret: Annotated[
        Text,
        option(
            "--token-secret NAME",
            "Kubernetes: Secret with the key token. Default: torchscale-token",
        ),
    ] = None
    gpu_resource: Annotated[
        Text,
        option("--gpu-resource NAME", "Kubernetes: What GPUs are called. Default: nvidia.com/gpu"),
    ] = None
    rdma: Annotated[
        list[str] | None,
        option(
            "--rdma NAME[=N]",
            "Kubernetes: RDMA resource of each node; adds IPC_LOCK. May be repeated.",
        ),
    ] = None
    shm_size: Annotated[
        Text,
        option(
            "--shm-size SIZE", "Kubernetes: Bound of /dev/shm: 64Gi. Default: the node's memory."
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        option("--env NAME=VALUE", "Kubernetes: Variable of the pods; may be repeated."),
    ] = None
    node_selector: Annotated[
        list[str] | None,
        option(
            "--node-selector LABEL=VALUE",
            "Kubernetes: Label that nodes must have; may be repeated.",
        ),
    ] = None
    run_as_user: Annotated[
        int | None,
        option("--run-as-user UID", "Kubernetes: User and group of processes and results."),
    ] = None
    restarts: Annotated[
        int | None,
        option(
            "--restarts N",
            "Kubernetes: how often a node may start again (kubernetes-job). Default: 3",
        ),
    ] = None
    runtime: Annotated[
        Text,
        option(
            "--runtime NAME",
            "Kubernetes: ClusterTrainingRuntime (kubernetes). Default: torch-distributed",
        ),
    ] = None


def submit(
    context: typer.Context,
    config: ConfigArgument = None,
    engine: Annotated[
        SubmitEngine,
        option("--engine", "Kubernetes with Kubeflow Trainer, or without it (kubernetes-job)."),
    ] = SubmitEngine.SLURM,
    *,
    job: _JobOptions,
    output_dir: Annotated[
        Path | None,
        option(
            "--output-dir -o DIR",
            "Run folder, on a disk that all nodes see. Default: results/<experiment_name>; on "
            "Kubernetes a folder in the claim, <experiment_name>",
        ),
    ] = None,
    slurm: _SlurmOptions,
    kubernetes: _KubernetesOptions,
    wait: Annotated[
        bool, option("--wait", "Wait for the job's end, and leave with the benchmark's exit code.")
    ] = False,
    print_only: Annotated[
        bool, option("--print", "Print the script or the manifests; submit and write nothing.")
    ] = False,
    as_json: Annotated[
        bool, option("--json", "Print the job, or with --print its text, as JSON.")
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
        _of(run.JobOptions, job),
        _of(run.SlurmOptions, slurm),
        _of(run.KubernetesOptions, kubernetes),
        _of(run.TrainJobOptions, kubernetes),
        _of(run.IndexedJobOptions, kubernetes),
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
    submitted = prepared.submit()
    if as_json:
        print_json(json.dumps(asdict(submitted)))
    else:
        typer.echo(submitted.job_id)
    TERMINAL.note(
        f"Submitted job {submitted.job_id}. Results: {submitted.results}. Log: {submitted.log}"
    )
    if wait:
        raise typer.Exit(run.follow(prepared, submitted, TERMINAL.note))


def _of(kind: type[G], given: object) -> G:
    """The options of a kind, from those that were given."""
    values = {name: getattr(given, name) for name in inspect.signature(kind).parameters}
    return kind(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
            if value is not None
        }
    )
