"""The manifests of a benchmark: a TrainJob of Kubeflow Trainer, or an Indexed Job of Kubernetes
alone.

Both start the same command in every pod, and tell it with the same variables which node it is
(``PET_*``, as Kubeflow's trainer does; :mod:`torchscale.features.cluster.cluster` reads them).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import yaml

from torchscale.features.cluster.master import DEFAULT_PORT
from torchscale.features.cluster.submit.pod_job import PodJob, check_pod_job
from torchscale.features.cluster.token import TOKEN_VARIABLE

Manifest: TypeAlias = Mapping[str, "Content"]
Content: TypeAlias = "str | int | bool | Sequence[Content] | Manifest"

INSTANCE_LABEL = "app.kubernetes.io/instance"
"""Label on everything that belongs to a job: its objects are found and deleted by it."""
INDEX_ANNOTATION = "batch.kubernetes.io/job-completion-index"
"""Annotation of a pod of an Indexed Job: which one it is, from 0."""
CONTAINER = "node"
"""Kubeflow's runtimes call the container that trains so, and the job in their template too."""
TOKEN_KEY = "token"  # noqa: S105 - the name of the key
"""Key in the Secret."""
GRACE_SECONDS = 120
"""Seconds between TERM and KILL: a launch ends within its grace period, and the report is
written."""
_RESULTS = "/results"
_CONFIG_DIRECTORY = "/etc/torchscale"
_CONFIG_FILE = "config.yaml"
_SUBSTITUTED = re.compile(r"\$(?=[$(])")
_PATCH_MANAGER = "torchscale/submit"
"""Who owns a patch of a TrainJob's runtime; its webhook wants ``domain/path``."""
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
    labels = _labels(job)
    service: Manifest = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(job),
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
        "command": _command(_JOB_END),
        "args": _arguments(job),
        "env": [*_rank_env(job), *_env(job)],
        **_optional("resources", _resources(job)),
        **_container_patch(job),
    }
    pod: Manifest = {
        "restartPolicy": "Never",
        "subdomain": job.name,
        "enableServiceLinks": False,  # else every Service of the namespace becomes variables
        "automountServiceAccountToken": False,
        **_pod_patch(job),
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
        **_optional("activeDeadlineSeconds", job.deadline_seconds),
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    indexed: Manifest = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": _metadata(job),
        "spec": spec,
    }
    return [_config_map(job), service, indexed]


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
        **_pod_patch(job),
        "containers": [{"name": CONTAINER, **_container_patch(job)}],
    }
    pod_template: Manifest = {"metadata": {"labels": _labels(job)}, "spec": pod_patch}
    job_patch: Manifest = {"name": CONTAINER, "template": {"spec": {"template": pod_template}}}
    spec: Manifest = {
        "runtimeRef": {
            "apiGroup": "trainer.kubeflow.org",
            "kind": "ClusterTrainingRuntime",
            "name": runtime,
        },
        **_optional("activeDeadlineSeconds", job.deadline_seconds),
        "trainer": {
            "numNodes": job.nodes,
            "image": job.image,
            "command": _command(_TRAIN_JOB_END),
            "args": _arguments(job),
            **_optional("env", _env(job)),
            **_optional("resourcesPerNode", _resources(job)),
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
        "metadata": _metadata(job),
        "spec": spec,
    }
    return [_config_map(job), train]


def secret_of(job: PodJob) -> list[Manifest]:
    """The Secret with the variables that no other manifest may hold; none where there are none."""
    if not job.secrets:
        return []
    secret: Manifest = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": _metadata(job),
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


def _metadata(job: PodJob) -> Manifest:
    return {"name": job.name, **_optional("namespace", job.namespace), "labels": _labels(job)}


def _labels(job: PodJob) -> Manifest:
    return {"app.kubernetes.io/name": "torchscale", INSTANCE_LABEL: job.name}


def _config_map(job: PodJob) -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": _metadata(job),
        "data": {_CONFIG_FILE: job.config},
    }


def _command(end: str) -> list[str]:
    return ["sh", "-c", _literal(_MAIN + end), "torchscale-node"]


def _arguments(job: PodJob) -> list[str]:
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


def _rank_env(job: PodJob) -> list[Manifest]:
    """Which node a pod is, as Kubeflow's trainer says it
    (``pkg/runtime/framework/plugins/torch/torch.go``)."""
    index: Manifest = {"fieldRef": {"fieldPath": f"metadata.annotations['{INDEX_ANNOTATION}']"}}
    return [
        {"name": "PET_NNODES", "value": str(job.nodes)},
        {"name": "PET_NODE_RANK", "valueFrom": index},
        {"name": "PET_MASTER_ADDR", "value": f"{job.name}-0.{job.name}"},
        {"name": "PET_MASTER_PORT", "value": str(DEFAULT_PORT)},
    ]


def _env(job: PodJob) -> list[Manifest]:
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


def _resources(job: PodJob) -> Manifest:
    """Limits, which are what is requested too."""
    counts = {"cpu": job.cpus_per_node, job.gpu_resource: job.gpus_per_node, **job.rdma}
    limits = {name: str(count) for name, count in counts.items() if count is not None}
    if limits:
        return {"limits": limits}
    return {}


def _container_patch(job: PodJob) -> Manifest:
    """What both kinds of job say of the container."""
    capabilities: Manifest = {"capabilities": {"add": ["IPC_LOCK"]}} if job.rdma else {}
    mounts: list[Manifest] = [
        {"name": "torchscale-config", "mountPath": _CONFIG_DIRECTORY, "readOnly": True},
        {"name": "torchscale-results", "mountPath": _RESULTS},
        {"name": "torchscale-shm", "mountPath": "/dev/shm"},  # noqa: S108 - of the pod
    ]
    return {"volumeMounts": mounts, **_optional("securityContext", capabilities)}


def _pod_patch(job: PodJob) -> Manifest:
    """What both kinds of job say of a pod."""
    memory: Manifest = {"medium": "Memory", **_optional("sizeLimit", job.shm_size)}
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
        **_optional("securityContext", security),
        **_optional("nodeSelector", job.node_selector),
        **_optional("affinity", apart if job.nodes > 1 else {}),
        "volumes": volumes,
    }


def _optional(key: str, value: Content | None) -> Manifest:
    """``value`` under ``key``; nothing where it is empty or ``None``."""
    if value is None or (not isinstance(value, int | str) and not value):
        return {}
    return {key: value}


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
