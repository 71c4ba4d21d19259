"""The manifests of a benchmark: a TrainJob of Kubeflow Trainer, or an Indexed Job of Kubernetes
alone.

Both start the same command in every pod, and tell it with the same variables which node it is
(``PET_*``, as Kubeflow's trainer does; :mod:`torchscale.features.cluster.cluster` reads them).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import yaml

from torchscale.features.cluster.master import DEFAULT_PORT
from torchscale.features.cluster.submit.pod_job import PodJob, check_pod_job
from torchscale.features.cluster.submit.pod_parts import (
    INSTANCE_LABEL,
    Manifest,
    config_map,
    job_labels,
    object_metadata,
    optional_field,
    pod_arguments,
    pod_command,
    pod_variables,
    rank_variables,
    resource_limits,
    shared_container,
    shared_pod,
)

CONTAINER = "node"
"""Kubeflow's runtimes call the container that trains so, and the job in their template too."""
_PATCH_MANAGER = "torchscale/submit"
"""Who owns a patch of a TrainJob's runtime; its webhook wants ``domain/path``."""
_JOB_END = """\
# Exit codes 1 to 3 of node 0 are the sweep's result. Whatever ends another node, a new pod may take its place.
if [ "$PET_NODE_RANK" != 0 ]; then
  case $code in 0|1) code=0 ;; *) code=75 ;; esac
fi
exit "$code"
"""
_TRAIN_JOB_END = """\
# A TrainJob starts whatever fails again. A sweep that has ended with failed cells is not measured better by that.
case $code in 1) code=0 ;; esac
exit "$code"
"""
_FINAL_EXIT_CODES = (1, 2, 3, 126, 127)
"""Exit codes of node 0 that end the job: failed cells, wrong input, nothing to run on; 126 and 127:
there is no torchscale in the image."""


def indexed_job(job: PodJob, restarts: int) -> list[Manifest]:
    """ConfigMap, headless Service and Job: one pod for each node, for clusters without Kubeflow.

    The Service gives pod 0 the name ``<job>-0.<job>``, also before it is ready: the other nodes
    look for it at once.

    Args:
        job: The job.
        restarts: How often a node may be started again, on average.

    Raises:
        UsageError: Kubernetes would refuse it.
    """
    check_pod_job(job)
    labels = job_labels(job)
    service: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": object_metadata(job),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {INSTANCE_LABEL: job.name},
            "ports": [{"name": "sweep", "port": DEFAULT_PORT}],
        },
    }
    container: Manifest = {
        "name": CONTAINER,
        "image": job.image,
        "command": pod_command(_JOB_END),
        "args": pod_arguments(job),
        "env": [*rank_variables(job), *pod_variables(job)],
        **optional_field("resources", resource_limits(job)),
        **shared_container(job),
    }
    pod: Manifest = {
        "restartPolicy": "Never",
        "subdomain": job.name,
        "enableServiceLinks": False,  # else every Service of the namespace becomes variables
        "automountServiceAccountToken": False,
        **shared_pod(job),
        "containers": [container],
    }
    spec: Manifest = {
        "completionMode": "Indexed",
        "completions": job.nodes,
        "parallelism": job.nodes,
        "backoffLimit": restarts * job.nodes,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": "FailJob",
                    "onExitCodes": {
                        "containerName": CONTAINER,
                        "operator": "In",
                        "values": list(_FINAL_EXIT_CODES),
                    },
                }
            ]
        },
        **optional_field("activeDeadlineSeconds", job.deadline_seconds),
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    indexed: Manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": object_metadata(job),
        "spec": spec,
    }
    return [config_map(job), service, indexed]


def train_job(job: PodJob, runtime: str) -> list[Manifest]:
    """ConfigMap and TrainJob (Kubeflow Trainer 2.3): the runtime's template, with our container and
    volumes.

    Args:
        job: The job.
        runtime: Name of a ClusterTrainingRuntime for torch.

    Raises:
        UsageError: Kubernetes would refuse it.
    """
    check_pod_job(job)
    pod_patch: Manifest = {
        **shared_pod(job),
        "containers": [{"name": CONTAINER, **shared_container(job)}],
    }
    pod_template: Manifest = {"metadata": {"labels": job_labels(job)}, "spec": pod_patch}
    job_patch: Manifest = {"name": CONTAINER, "template": {"spec": {"template": pod_template}}}
    spec: Manifest = {
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": "ClusterTrainingRuntime",
            "name": runtime,
        },
        **optional_field("activeDeadlineSeconds", job.deadline_seconds),
        "trainer": {
            "numNodes": job.nodes,
            "image": job.image,
            "command": pod_command(_TRAIN_JOB_END),
            "args": pod_arguments(job),
            **optional_field("env", pod_variables(job)),
            **optional_field("resourcesPerNode", resource_limits(job)),
        },
        "runtimePatches": [
            {
                "manager": _PATCH_MANAGER,
                "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job_patch]}}},
            }
        ],
    }
    train: Manifest = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": object_metadata(job),
        "spec": spec,
    }
    return [config_map(job), train]


def secret_of(job: PodJob) -> list[Manifest]:
    """The Secret with the variables that no other manifest may hold; none where there are none."""
    if not job.secrets:
        return []
    secret: Manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": object_metadata(job),
        "type": "Opaque",
        "stringData": dict(job.secrets),
    }
    return [secret]


def to_yaml(manifests: Sequence[Manifest]) -> str:
    """Manifests as documents of one YAML stream."""
    return yaml.dump_all(
        manifests,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        width=120,
        explicit_start=True,
    )


class _Dumper(yaml.SafeDumper):
    """Text in quotes, unless any reader of YAML takes it for text: kubectl reads ``1e3`` and ``on``
    otherwise than PyYAML, which writes them bare."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - PyYAML's interface
        return True


_PLAIN = re.compile(r"[A-Za-z/][A-Za-z]*[A-Za-z0-9./_-]{2,}", re.ASCII)
_WORDS_WITH_A_MEANING = frozenset({"true", "false", "null", "none", "yes", "no", "off", "on"})


def _text(dumper: _Dumper, data: str) -> yaml.Node:
    lines = data.split("\n")
    block = (
        len(lines) > 1
        and not data.startswith((" ", "\n"))
        and all(line.isprintable() for line in lines)
    )
    plain = _PLAIN.fullmatch(data) is not None and data.lower() not in _WORDS_WITH_A_MEANING
    style: str | None = '"'
    if block:
        style = "|"
    elif plain:
        style = None
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _text)
