"""kubectl: hand manifests to the cluster, and ask how a job and its pods are."""

from __future__ import annotations

from pydantic import ValidationError

from torchscale.errors import MachineError, UsageError
from torchscale.features.cluster.submit.cluster_job import (
    ClusterJob,
    ObjectList,
    cluster_job,
    shortened,
)
from torchscale.features.cluster.submit.pod_parts import INSTANCE_LABEL
from torchscale.util.processes.bounded import Finished, run_bounded

KUBECTL_SECONDS = 90.0
"""Time limit for one kubectl: it asks the API server several times, each within
:data:`_REQUEST_SECONDS`."""
_REQUEST_SECONDS = 30
"""API servers answer within seconds; a control plane that is being updated may take longer."""


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
        items = ObjectList.model_validate_json(done.stdout).items
    except ValidationError as error:
        raise OSError(f"kubectl's answer cannot be read: {error.errors()[0]['msg']}") from error
    return cluster_job(name, items)


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
        return shortened(lines[-1])
    return f"exit code {done.returncode}"
