"""What a benchmark on Kubernetes is made from, and what of it Kubernetes would refuse."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from torchscale.errors import UsageError
from torchscale.features.cluster.token import TOKEN_VARIABLE

LONGEST_JOB_NAME = 45
"""A label of DNS has 63 characters. A pod's name is the job's and up to 18 more: ``-node-0`` of
Kubeflow's JobSet, ``-1023`` of its index, ``-abcde`` of its creation."""
MAX_CONFIG_BYTES = 1024 * 1024
"""Maximum size of a ConfigMap's data (``MaxSecretSize`` of the API server's validation, which holds
for both)."""
_MAX_IMAGE_CHARACTERS = 500
"""Maximum number of characters, as the schema of a TrainJob has it."""
_MAX_ENV = 120
"""A TrainJob takes 128 variables, and some are ours."""
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_JOB_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_IMAGE = re.compile(r"[a-zA-Z0-9][\w.\-/:@]*", re.ASCII)
_QUALIFIED = re.compile(
    r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII
)
"""Names of resources and labels: ``nvidia.com/gpu``, ``rdma/hca_shared_devices_a``."""
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([\w.-]{0,61}[A-Za-z0-9])?)?", re.ASCII)
_QUANTITY = re.compile(r"[1-9]\d{0,11}([KMGT]i|[kMGT])?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED_VARIABLES = re.compile(rf"PET_.*|JOB_COMPLETION_INDEX|{TOKEN_VARIABLE}")


@dataclass(frozen=True)
class PodJob:
    """What manifests are made from.

    Attributes:
        name: Name of the job and of everything that belongs to it.
        config: The experiment as YAML, which a ConfigMap carries.
        directory: The run folder, relative to the root of the claim.
        image: Has torchscale and torch; the experiment's own code too.
        nodes: Pods, one on each node.
        results_claim: Name of the PersistentVolumeClaim that keeps the results.
        token_secret: Name of the Secret whose key ``token`` is the nodes' secret; a single node
            needs none.
        namespace: Where; ``None`` is kubectl's.
        gpus_per_node, cpus_per_node: Limits of each pod.
        gpu_resource: Resource name that the device plugin gives GPUs.
        rdma: Resource → count, for network adapters. With any, the pods get IPC_LOCK, which
            registering memory needs.
        shm_size: Bound of /dev/shm as a quantity; ``None``: as the node's memory allows.
        env: Further variables.
        secrets: Variables that a Secret of the job's name holds, under their own names.
        node_selector: Labels that the nodes must have.
        run_as_user: User and group of the processes and the claim's files; ``None``: as the image
            says.
        deadline_seconds: The cluster ends the job after so long.
    """

    name: str
    config: str
    directory: PurePosixPath
    image: str
    nodes: int
    results_claim: str
    token_secret: str
    namespace: str | None = None
    gpus_per_node: int | None = None
    cpus_per_node: int | None = None
    gpu_resource: str = "nvidia.com/gpu"
    rdma: Mapping[str, int] = field(default_factory=dict)
    shm_size: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    run_as_user: int | None = None
    deadline_seconds: int | None = None


def check_pod_job(job: PodJob) -> None:
    """Refuse what the API server would refuse, or what would not reach a pod as it was written.

    Raises:
        UsageError: one line that names the option and the value.
    """
    _check(
        "--job-name",
        job.name,
        _JOB_NAME,
        LONGEST_JOB_NAME,
        "small letters, digits and -, a letter first",
    )
    _check(
        "--image",
        job.image,
        _IMAGE,
        _MAX_IMAGE_CHARACTERS,
        "an image such as ghcr.io/you/torchscale:1",
    )
    if job.namespace is not None:
        _check("--namespace", job.namespace, _LABEL, 63, "small letters, digits and -")
    check_name("--results-claim", job.results_claim)
    check_name("--token-secret", job.token_secret)
    _check("--gpu-resource", job.gpu_resource, _QUALIFIED, 316, "a resource such as nvidia.com/gpu")
    for resource in job.rdma:
        _check("--rdma", resource, _QUALIFIED, 316, "a resource such as rdma/hca_shared_devices_a")
        if "/" not in resource or resource == job.gpu_resource:
            raise UsageError(
                f"--rdma {resource!r}: expected a device plugin's resource",
                hint="`kubectl describe node` lists them",
            )
    if job.shm_size is not None:
        _check("--shm-size", job.shm_size, _QUANTITY, 16, "a size such as 64Gi")
    for key, value in job.node_selector.items():
        _check(
            "--node-selector",
            key,
            _QUALIFIED,
            316,
            "LABEL=VALUE, the label such as gpu.example.com/model",
        )
        _check(f"--node-selector {key}", value, _LABEL_VALUE, 63, "letters, digits and - _ .")
    _check_env({**job.env, **job.secrets})
    _check_directory(job.directory)
    size = len(job.config.encode())
    if size > MAX_CONFIG_BYTES:
        raise UsageError(
            f"the config has {size:,} bytes; a ConfigMap holds {MAX_CONFIG_BYTES:,}",
            hint="split it into several sweeps",
        )


def check_name(option: str, name: str) -> None:
    """
    Raises:
        UsageError: Kubernetes gives no object this name.
    """
    _check(option, name, _SUBDOMAIN, 253, "small letters, digits, - and .")


def parse_pairs(
    option: str, texts: Sequence[str], example: str, *, value_is_optional: bool = False
) -> dict[str, str]:
    """``NAME=VALUE`` options; without a value, and where it is optional, ``"1"``.

    Raises:
        UsageError: one has no ``=``, or a key is given twice.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key or not (equals or value_is_optional):
            # Not `{key}: …`, which reads like a secret and its value where the key is the name of
            # one.
            raise UsageError(
                f"{option} {text!r} has no value; expected {option} NAME=VALUE",
                hint=f"for example {example}",
            )
        if key in pairs:
            raise UsageError(f"{option} {key}: given twice", hint="keep one of them")
        pairs[key] = value if equals else "1"
    return pairs


def parse_counts(option: str, texts: Sequence[str], example: str) -> dict[str, int]:
    """``NAME=N`` options; ``NAME`` alone is one of it.

    Raises:
        UsageError: as :func:`parse_pairs`, or a count is none.
    """
    pairs = parse_pairs(option, texts, example, value_is_optional=True)
    for key, text in pairs.items():
        if not re.fullmatch(r"[1-9]\d{0,3}", text, re.ASCII):
            raise UsageError(
                f"{option} {key}={text}: expected a count from 1 to 9999",
                hint=f"for example {example}",
            )
    return {key: int(text) for key, text in pairs.items()}


def parse_time(text: str) -> int:
    """Seconds of a time as Slurm writes it: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S.

    Raises:
        UsageError: it is none, or zero.
    """
    match = re.fullmatch(r"(?:(\d{1,4})-)?(\d{1,7})(?::(\d{1,2}))?(?::(\d{1,2}))?", text, re.ASCII)
    if match is None:
        raise UsageError(
            f"--time {text!r}: expected H:M:S, D-H:M:S or minutes",
            hint="for example --time 2:00:00",
        )
    days, *rest = match.groups()
    numbers = [int(number) for number in rest if number is not None]
    units: tuple[int, ...] = (60, 1)
    if days is not None or len(numbers) == 3:  # after days come hours
        units = (3600, 60, 1)
    seconds = int(days or 0) * 86400 + sum(
        number * unit for number, unit in zip(numbers, units, strict=False)
    )
    if seconds == 0:
        raise UsageError(
            f"--time {text!r}: expected more than zero", hint="for example --time 2:00:00"
        )
    return seconds


def _check(option: str, text: str, pattern: re.Pattern[str], longest: int, expected: str) -> None:
    if len(text) > longest:
        raise UsageError(
            f"{option} {text[:40]!r}…: {len(text)} characters; Kubernetes takes {longest} here"
        )
    if not pattern.fullmatch(text):
        raise UsageError(f"{option} {text!r}: expected {expected}")


def _check_env(env: Mapping[str, str]) -> None:
    for name, value in env.items():
        if not _VARIABLE.fullmatch(name):
            raise UsageError(
                f"--env {name!r}: expected NAME=VALUE", hint="for example --env NCCL_DEBUG=INFO"
            )
        if _RESERVED_VARIABLES.fullmatch(name):
            raise UsageError(
                f"--env {name}: set by the job itself", hint="see `torchscale docs kubernetes`"
            )
        if "\x00" in value:
            raise UsageError(f"--env {name}: a zero byte cannot be in a variable")
    if len(env) > _MAX_ENV:
        raise UsageError(f"--env: {len(env)} variables; a job takes {_MAX_ENV}")


def _check_directory(directory: PurePosixPath) -> None:
    text = str(directory)
    if (
        directory.is_absolute()
        or ".." in directory.parts
        or text == "."
        or not text.isprintable()
        or text.startswith("-")
    ):
        raise UsageError(
            f"--output-dir {text!r}: expected a folder in the claim, relative to its root",
            hint="for example --output-dir runs/h100",
        )
