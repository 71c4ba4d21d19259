"""kubectl: hand manifests to the cluster, and ask how a job and its pods are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from torchscale.errors import MachineError, UsageError
from torchscale.features.cluster.submit.manifests import CONTAINER, INDEX_ANNOTATION, INSTANCE_LABEL
from torchscale.util.processes.bounded import Finished, run_bounded

KUBECTL_SECONDS = 90.0
"""Time limit for one kubectl: it asks the API server several times, each within
:data:`_REQUEST_SECONDS`."""
_REQUEST_SECONDS = 30
"""API servers answer within seconds; a control plane that is being updated may take longer."""
_LONGEST_REASON = 200
"""Messages of schedulers name every node that does not fit."""

JobEnd = Literal["Complete", "Failed"]
_ENDS: Mapping[str, JobEnd] = {"Complete": "Complete", "Failed": "Failed"}
"""Conditions of Jobs and of TrainJobs after which nothing starts any more."""


class _Object(BaseModel):
    model_config = ConfigDict(
        frozen=True, extra="ignore", alias_generator=to_camel, populate_by_name=True
    )


class _Metadata(_Object):
    name: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    annotations: dict[str, str] = Field(default_factory=dict)


class _Condition(_Object):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class _Waiting(_Object):
    reason: str = ""
    message: str = ""


class _Terminated(_Object):
    exit_code: int | None = None
    message: str = ""


class _ContainerState(_Object):
    waiting: _Waiting | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(_Object):
    name: str = ""
    state: _ContainerState = _ContainerState()
    last_state: _ContainerState = _ContainerState()


class _Status(_Object):
    phase: str = ""
    conditions: tuple[_Condition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()


class _Item(_Object):
    """A job or a pod: of each, what is read here."""

    kind: str
    metadata: _Metadata = _Metadata()
    status: _Status = _Status()


class _List(_Object):
    items: tuple[_Item, ...]


@dataclass(frozen=True)
class ClusterJob:
    """How a job is.

    Attributes:
        text: State for people: its end, else its pods and what they wait for.
        end: How it ended; ``None`` while it has not.
        exists: Whether it is there at all.
        exit_code: Exit code that node 0's benchmark left; ``None`` without one.
    """

    text: str
    end: JobEnd | None
    exists: bool
    exit_code: int | None


def apply(manifests: str, namespace: str | None) -> None:
    """Hand manifests to the cluster.

    On the server's side: the client's way keeps a copy of each object in an annotation, which holds
    256 KiB, and a config may have 1 MiB.

    Raises:
        MachineError: there is no kubectl, the cluster refuses them, or it does not answer.
    """
    argv = [
        "kubectl",
        "apply",
        "--server-side",
        "--field-manager=torchscale",
        *_where(namespace),
        "-f",
        "-",
    ]
    done = _ask(argv, stdin=manifests)
    if done.returncode != 0:
        raise MachineError(
            f"kubectl apply: {_reason(done)}", hint="`--print` shows what was to be created"
        )


def check_new(resource: str, name: str, namespace: str | None) -> None:
    """Refuse a name that is in use: a job does not start again because its manifest is applied
    again.

    Raises:
        UsageError: there is such a job.
        MachineError: there is no kubectl, or the cluster does not answer.
    """
    if _exists(resource, name, namespace):
        where = "".join(f" {option}" for option in _where(namespace))
        raise UsageError(
            f"--job-name {name}: the cluster has a {resource.partition('.')[0]} of this name",
            hint=f"delete it (kubectl delete{where} {resource} {name}), or give another "
            "--job-name; the run folder stays and is continued",
        )


def check_secret(name: str, namespace: str | None) -> None:
    """Refuse a Secret that is missing: without it pods would wait for ever. Where Secrets may not
    be read, nothing is refused.

    Raises:
        UsageError: there is no such Secret.
        MachineError: there is no kubectl, or the cluster does not answer.
    """
    if _exists("secret", name, namespace, unreadable=True):
        return
    where = "".join(f"{option} " for option in _where(namespace))
    raise UsageError(
        f"there is no Secret {name} (--token-secret); the nodes need one to know each other",
        hint=f"openssl rand -hex 32 | kubectl create secret generic {where}{name} "
        "--from-file=token=/dev/stdin",
    )


def job_of(resource: str, name: str, namespace: str | None) -> ClusterJob:
    """How a job and its pods are.

    Args:
        resource: ``jobs.batch`` or ``trainjobs.trainer.kubeflow.org``.
        name: Name of the job.
        namespace: ``None`` is kubectl's.

    Raises:
        MachineError: kubectl cannot be started, or this user may not ask.
        OSError: the cluster does not answer this time.
    """
    selector = f"--selector={INSTANCE_LABEL}={name}"
    done = _ask(
        ["kubectl", "get", f"{resource},pods", selector, *_where(namespace), "--output=json"]
    )
    if done.returncode != 0:
        if "forbidden" in done.stderr.lower():
            raise MachineError(
                f"kubectl get: {_reason(done)}",
                hint="the job runs on; who may read it can follow it",
            )
        raise OSError(_reason(done))
    try:
        items = _List.model_validate_json(done.stdout).items
    except ValidationError as error:
        raise OSError(f"kubectl's answer cannot be read: {error.errors()[0]['msg']}") from error
    return _job(name, items)


def _job(name: str, items: Sequence[_Item]) -> ClusterJob:
    pods = [item for item in items if item.kind == "Pod"]
    job = next((item for item in items if item.kind != "Pod" and item.metadata.name == name), None)
    exit_code = _exit_code(pods)
    if job is None:
        return ClusterJob("deleted", None, False, exit_code)
    for condition in job.status.conditions:
        end = _ENDS.get(condition.type)
        if condition.status == "True" and end is not None:
            told = ": ".join(filter(None, (condition.reason, _short(condition.message))))
            text: str = end
            if told and end == "Failed":
                text = f"{end} ({told})"
            return ClusterJob(text, end, True, exit_code)
    suspended = any(
        each.type == "Suspended" and each.status == "True" for each in job.status.conditions
    )
    if suspended:
        return ClusterJob("Suspended", None, True, exit_code)
    return ClusterJob(_pods_text(pods), None, True, exit_code)


def _pods_text(pods: Sequence[_Item]) -> str:
    """``pods: 2 Running, 2 Pending (ImagePullBackOff: …)``."""
    alive = [pod for pod in pods if pod.metadata.deletion_timestamp is None]
    phases = sorted({pod.status.phase or "Unknown" for pod in alive})
    counts = [
        f"{sum((pod.status.phase or 'Unknown') == phase for pod in alive)} {phase}"
        for phase in phases
    ]
    reason = next(
        filter(None, map(_waits_for, sorted(alive, key=lambda pod: pod.metadata.name))), ""
    )
    text = f"pods: {', '.join(counts) or 'none yet'}"
    if reason:
        text += f" ({reason})"
    return text


def _waits_for(pod: _Item) -> str:
    """Why a pod does not run; empty where nothing is said."""
    if pod.status.phase not in ("Pending", "Running"):
        return ""
    for status in pod.status.container_statuses:
        waiting = status.state.waiting
        if waiting is not None and waiting.reason not in (
            "",
            "ContainerCreating",
            "PodInitializing",
        ):
            return ": ".join(filter(None, (waiting.reason, _short(waiting.message))))
    for condition in pod.status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return ": ".join(filter(None, (condition.reason, _short(condition.message))))
    return ""


def _exit_code(pods: Sequence[_Item]) -> int | None:
    """What node 0 left as its container's message; of several pods, the newest that left one."""
    first = [pod for pod in pods if pod.metadata.annotations.get(INDEX_ANNOTATION) == "0"]
    for pod in sorted(first, key=lambda pod: pod.metadata.creation_timestamp, reverse=True):
        for status in pod.status.container_statuses:
            if status.name != CONTAINER:
                continue
            for state in (status.state, status.last_state):
                text = "" if state.terminated is None else state.terminated.message.strip()
                if text.isascii() and text.isdigit() and int(text) < 256:
                    return int(text)
    return None


def _exists(resource: str, name: str, namespace: str | None, *, unreadable: bool = False) -> bool:
    """Whether an object is there; ``unreadable`` where this user may not ask."""
    done = _ask(["kubectl", "get", resource, name, *_where(namespace), "--output=name"])
    if done.returncode == 0:
        return True
    reason = done.stderr.lower()
    if "(notfound)" in reason:
        return False
    if "(forbidden)" in reason and unreadable:
        return True
    raise MachineError(
        f"kubectl get {resource} {name}: {_reason(done)}", hint="check with `kubectl cluster-info`"
    )


def _where(namespace: str | None) -> list[str]:
    if namespace is None:
        return []
    return [f"--namespace={namespace}"]


def _ask(argv: list[str], stdin: str | None = None) -> Finished:
    try:
        return run_bounded(
            [*argv, f"--request-timeout={_REQUEST_SECONDS}s"],
            timeout_seconds=KUBECTL_SECONDS,
            stdin=stdin,
        )
    except MachineError as error:
        raise MachineError(
            "kubectl cannot be started: is it installed here?",
            hint="run this where kubectl reaches the cluster, or use --print and apply the "
            "manifests there",
        ) from error


def _reason(done: Finished) -> str:
    if done.timed_out:
        return f"no answer within {KUBECTL_SECONDS:.0f} s"
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    if lines:
        return _short(lines[-1])
    return f"exit code {done.returncode}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    if len(text) <= _LONGEST_REASON:
        return text
    return f"{text[: _LONGEST_REASON - 1]}…"
