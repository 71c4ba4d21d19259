"""What an Indexed Job and a TrainJob say alike: labels, config, and what runs in each pod."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from torchscale.features.cluster.master import DEFAULT_PORT
from torchscale.features.cluster.submit.pod_job import PodJob
from torchscale.features.cluster.token import TOKEN_VARIABLE

Manifest: TypeAlias = Mapping[str, "Content"]
Content: TypeAlias = "str | int | bool | Sequence[Content] | Manifest"
INSTANCE_LABEL = "app.kubernetes.io/instance"
"""Label on everything that belongs to a job: its objects are found and deleted by it."""
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
"""Annotation of a pod of an Indexed Job: which one it is, from 0."""
TOKEN_KEY = "token"  # noqa: S105 - the name of the key
"""Key in the Secret."""
GRACE_SECONDS = 120
"""Seconds between TERM and KILL: a launch ends within its grace period, and the report is
written."""
_RESULTS = "/results"
_CONFIG_DIRECTORY = "/etc/torchscale"
_CONFIG_FILE = "config.yaml"
_SUBSTITUTED = re.compile(r"\$(?=[$(])")
_MAIN = f"""\
# The first process of a pod gets TERM when the pod is to end, and nothing is sent to the others.
child= stopping= code=0
trap 'stopping=1; [ -z "$child" ] || kill -TERM "$child"' TERM INT
cd {_RESULTS} || exit 1
torchscale "$@" &
child=$!
if [ -n "$stopping" ]; then kill -TERM "$child"; fi
wait "$child" || code=$?
while kill -0 "$child" 2>/dev/null; do  # a trapped signal ends wait, not the child
  code=0
  wait "$child" || code=$?
done
if [ "$PET_NODE_RANK" = 0 ]; then echo "$code" > /dev/termination-log; fi
"""


def object_metadata(job: PodJob) -> Manifest:
    """Name, namespace and labels of every object of a job."""
    return {
        "name": job.name,
        **optional_field("namespace", job.namespace),
        "labels": job_labels(job),
    }


def job_labels(job: PodJob) -> Manifest:
    """Labels of everything that belongs to a job."""
    return {"app.kubernetes.io/name": "torchscale", INSTANCE_LABEL: job.name}


def config_map(job: PodJob) -> Manifest:
    """The config of the experiment, as an object."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": object_metadata(job),
        "data": {_CONFIG_FILE: job.config},
    }


def pod_command(end: str) -> list[str]:
    """What runs first in a pod: torchscale, then ``end``, which says how the pod ends."""
    return ["sh", "-c", _literal(_MAIN + end), "torchscale-node"]


def pod_arguments(job: PodJob) -> list[str]:
    """Arguments of torchscale in every pod."""
    arguments = [
        "benchmark",
        f"{_CONFIG_DIRECTORY}/{_CONFIG_FILE}",
        "--output-dir",
        f"{_RESULTS}/{job.directory}",
    ]
    return [_literal(argument) for argument in [*arguments, "--nnodes", str(job.nodes)]]


def _literal(text: str) -> str:
    """Text that reaches the container as it is: Kubernetes replaces ``$(NAME)``, and reads ``$$``
    as ``$``."""
    return _SUBSTITUTED.sub("$$", text)


def rank_variables(job: PodJob) -> list[Manifest]:
    """Which node a pod is, as Kubeflow's trainer says it
    (``pkg/runtime/framework/plugins/torch/torch.go``)."""
    index: Manifest = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX_ANNOTATION}']"}}
    return [
        {"name": "PET_NNODES", "value": str(job.nodes)},
        {"name": "PET_NODE_RANK", "valueFrom": index},
        {"name": "PET_MASTER_ADDR", "value": f"{job.name}-0.{job.name}"},
        {"name": "PET_MASTER_PORT", "value": str(DEFAULT_PORT)},
    ]


def pod_variables(job: PodJob) -> list[Manifest]:
    """The token, the secrets and the variables of a pod."""
    secret: Manifest = {"secretKeyRef": {"name": job.token_secret, "key": TOKEN_KEY}}
    token: list[Manifest] = []
    if job.nodes > 1:
        token = [{"name": TOKEN_VARIABLE, "valueFrom": secret}]
    secrets: list[Manifest] = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": job.name, "key": name}}}
        for name in job.secrets
    ]
    return [
        *token,
        *secrets,
        *({"name": name, "value": _literal(value)} for name, value in job.env.items()),
    ]


def resource_limits(job: PodJob) -> Manifest:
    """Limits, which are what is requested too."""
    counts = {"cpu": job.cpus_per_node, job.gpu_resource: job.gpus_per_node, **job.rdma}
    limits = {name: str(count) for name, count in counts.items() if count is not None}
    if limits:
        return {"limits": limits}
    return {}


def shared_container(job: PodJob) -> Manifest:
    """What both kinds of job say of the container."""
    capabilities: Manifest = {"capabilities": {"add": ["IPC_LOCK"]}} if job.rdma else {}
    mounts: list[Manifest] = [
        {"name": "torchscale-config", "mountPath": _CONFIG_DIRECTORY, "readOnly": True},
        {"name": "torchscale-results", "mountPath": _RESULTS},
        {"name": "torchscale-shm", "mountPath": "/dev/shm"},  # noqa: S108 - of the pod
    ]
    return {"volumeMounts": mounts, **optional_field("securityContext", capabilities)}


def shared_pod(job: PodJob) -> Manifest:
    """What both kinds of job say of a pod."""
    memory: Manifest = {"medium": "Memory", **optional_field("sizeLimit", job.shm_size)}
    volumes: list[Manifest] = [
        {"name": "torchscale-config", "configMap": {"name": job.name}},
        {"name": "torchscale-results", "persistentVolumeClaim": {"claimName": job.results_claim}},
        {"name": "torchscale-shm", "emptyDir": memory},
    ]
    same_job: Manifest = {"labelSelector": {"matchLabels": {INSTANCE_LABEL: job.name}}}
    apart: Manifest = {  # two pods on one machine would measure its memory as if it were the network
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {**same_job, "topologyKey": "kubernetes.io/hostname"}
            ]
        }
    }
    user = job.run_as_user
    security: Manifest = {}
    if user is not None:
        security = {"runAsNonRoot": True, "runAsUser": user, "runAsGroup": user, "fsGroup": user}
    return {
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        **optional_field("securityContext", security),
        **optional_field("nodeSelector", job.node_selector),
        **optional_field("affinity", apart if job.nodes > 1 else {}),
        "volumes": volumes,
    }


def optional_field(key: str, value: Content | None) -> Manifest:
    """``value`` under ``key``; nothing where it is empty or ``None``."""
    if value is None or (not isinstance(value, int | str) and not value):
        return {}
    return {key: value}
