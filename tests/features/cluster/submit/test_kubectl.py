"""What kubectl is told and asked, and what is read from its answers."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from torchscale.errors import MachineError, UsageError
from torchscale.features.cluster.submit import kubectl
from torchscale.features.cluster.submit.cluster_job import ClusterJob

JOBS = "jobs.batch"


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a program called kubectl first in the path; what it was called with is in the file that
    is returned."""

    def install(body: str) -> Path:
        calls = tmp_path / "calls"
        calls.unlink(missing_ok=True)
        program = tmp_path / "kubectl"
        program.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(calls))}\n{body}\n')
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        return calls

    return install


def answer(stand_in: Callable[..., Path], *items: dict[str, Any]) -> ClusterJob:
    """What is read from a list of these objects."""
    calls = stand_in(f"printf %s {shlex.quote(json.dumps({'kind': 'List', 'items': items}))}")
    job = kubectl.job_of(JOBS, "demo", "lab")
    assert calls.read_text() == (
        "get jobs.batch,pods --selector=app.kubernetes.io/instance=demo --namespace=lab "
        "--output=json "
        "--request-timeout=30s\n"
    )
    return job


def the_job(*conditions: dict[str, str]) -> dict[str, Any]:
    return {"kind": "Job", "metadata": {"name": "demo"}, "status": {"conditions": list(conditions)}}


def pod(
    index: int, phase: str = "Running", created: str = "2026-01-01T00:00:00Z", **status: Any
) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"demo-{index}-{created[17:19]}",
            "creationTimestamp": created,
            "annotations": {"batch.kubernetes.io/job-completion-index": str(index)},
        },
        "status": {"phase": phase, **status},
    }


def ended(code: int, message: str) -> dict[str, Any]:
    return {
        "containerStatuses": [
            {"name": "node", "state": {"terminated": {"exitCode": code, "message": message}}}
        ]
    }


def test_manifests_are_applied_from_standard_input(
    stand_in: Callable[..., Path], tmp_path: Path
) -> None:
    calls = stand_in(f"cat > {shlex.quote(str(tmp_path / 'input'))}")
    kubectl.apply("kind: Job\n# ü\n", None)
    assert (
        calls.read_text()
        == "apply --server-side --field-manager=torchscale -f - --request-timeout=30s\n"
    )
    assert (tmp_path / "input").read_text() == "kind: Job\n# ü\n"


def test_what_the_cluster_refuses_is_one_line(stand_in: Callable[..., Path]) -> None:
    stand_in(
        "echo 'warning: x' >&2; echo 'Error from server (BadRequest): unknown field \"spec.x\"' "
        ">&2; exit 1"
    )
    with pytest.raises(MachineError) as caught:
        kubectl.apply("kind: Job\n", "lab")
    assert (
        caught.value.message
        == 'kubectl apply: Error from server (BadRequest): unknown field "spec.x"'
    )


def test_without_kubectl_the_error_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="kubectl cannot be started: is it installed here"):
        kubectl.apply("", None)


def test_a_cluster_that_does_not_answer_is_not_waited_for(
    stand_in: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in("exec sleep 60")
    monkeypatch.setattr(kubectl, "KUBECTL_SECONDS", 0.2)
    with pytest.raises(OSError, match="no answer within"):
        kubectl.job_of(JOBS, "demo", None)


def test_a_name_that_is_in_use_is_refused(stand_in: Callable[..., Path]) -> None:
    stand_in("echo job.batch/demo")
    with pytest.raises(
        UsageError, match="--job-name demo: the cluster has a jobs of this name"
    ) as caught:
        kubectl.check_new(JOBS, "demo", "lab")
    assert "kubectl delete --namespace=lab jobs.batch demo" in str(caught.value.hint)
    stand_in("echo 'Error from server (NotFound): jobs.batch \"demo\" not found' >&2; exit 1")
    kubectl.check_new(JOBS, "demo", "lab")
    stand_in("echo 'error: the server doesn'\"'\"'t have a resource type' >&2; exit 1")
    with pytest.raises(MachineError, match="have a resource type"):
        kubectl.check_new(JOBS, "demo", "lab")


def test_a_missing_secret_is_refused_and_one_that_may_not_be_read_is_not(
    stand_in: Callable[..., Path],
) -> None:
    stand_in("echo secret/torchscale-token")
    kubectl.check_secret("torchscale-token", None)
    stand_in("echo 'Error from server (Forbidden): secrets is forbidden' >&2; exit 1")
    kubectl.check_secret("torchscale-token", None)
    stand_in("echo 'Error from server (NotFound): secrets not found' >&2; exit 1")
    with pytest.raises(UsageError, match="there is no Secret torchscale-token") as caught:
        kubectl.check_secret("torchscale-token", "lab")
    assert "kubectl create secret generic --namespace=lab torchscale-token --from-file" in str(
        caught.value.hint
    )


def test_pods_are_counted_and_what_they_wait_for_is_said(stand_in: Callable[..., Path]) -> None:
    full = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/4 nodes: no GPU",
    }
    job = answer(stand_in, the_job(), pod(0), pod(1, "Pending", conditions=[full]))
    assert job == ClusterJob(
        "pods: 1 Pending, 1 Running (Unschedulable: 0/4 nodes: no GPU)", None, True, None
    )
    waiting = {
        "waiting": {"reason": "ImagePullBackOff", "message": "no\nsuch   image " + "x" * 300}
    }
    job = answer(
        stand_in,
        the_job(),
        pod(0, "Pending", containerStatuses=[{"name": "node", "state": waiting}]),
    )
    assert job.text.startswith("pods: 1 Pending (ImagePullBackOff: no such image x")
    assert len(job.text) < 260
    creating = {"waiting": {"reason": "ContainerCreating"}}
    job = answer(
        stand_in,
        the_job(),
        pod(0, "Pending", containerStatuses=[{"name": "node", "state": creating}]),
    )
    assert job.text == "pods: 1 Pending"
    assert answer(stand_in, the_job()).text == "pods: none yet"


def test_a_pod_that_is_being_deleted_is_not_counted(stand_in: Callable[..., Path]) -> None:
    leaving = pod(0)
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert answer(stand_in, the_job(), leaving, pod(1)).text == "pods: 1 Running"


def test_the_end_of_a_job_and_what_node_0_left(stand_in: Callable[..., Path]) -> None:
    complete = {"type": "Complete", "status": "True"}
    job = answer(
        stand_in, the_job(complete), pod(0, "Succeeded", **ended(0, "0\n")), pod(1, **ended(0, "7"))
    )
    assert job == ClusterJob("Complete", "Complete", True, 0)
    failed = {
        "type": "Failed",
        "status": "True",
        "reason": "PodFailurePolicy",
        "message": "exit code 1",
    }
    job = answer(stand_in, the_job(failed), pod(0, "Failed", **ended(1, "1\n")))
    assert job == ClusterJob("Failed (PodFailurePolicy: exit code 1)", "Failed", True, 1)
    not_yet = {"type": "Failed", "status": "False"}
    assert (
        answer(stand_in, the_job(not_yet, {"type": "SuccessCriteriaMet", "status": "True"})).end
        is None
    )


def test_the_newest_pod_of_node_0_counts(stand_in: Callable[..., Path]) -> None:
    complete = {"type": "Complete", "status": "True"}
    earlier = pod(0, "Failed", "2026-01-01T00:00:01Z", **ended(130, "130\n"))
    later = pod(0, "Succeeded", "2026-01-01T00:00:02Z", **ended(0, "1\n"))
    killed = pod(0, "Failed", "2026-01-01T00:00:03Z", **ended(137, "OOM\n"))
    assert answer(stand_in, the_job(complete), later, earlier).exit_code == 1
    assert answer(stand_in, the_job(complete), earlier, killed).exit_code == 130
    assert answer(stand_in, the_job(complete), pod(0, **ended(0, "9999"))).exit_code is None
    restarted = {"name": "node", "state": {}, "lastState": {"terminated": {"message": "130"}}}
    assert answer(stand_in, the_job(), pod(0, containerStatuses=[restarted])).exit_code == 130


def test_a_job_that_is_gone_or_suspended_is_named_so(stand_in: Callable[..., Path]) -> None:
    assert answer(stand_in, pod(0)) == ClusterJob("deleted", None, False, None)
    assert answer(stand_in, the_job({"type": "Suspended", "status": "True"})).text == "Suspended"


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"items": 3}', '{"items": [{"kind": "Pod", "status": []}]}']
)
def test_an_answer_that_is_none_counts_as_silence(stand_in: Callable[..., Path], text: str) -> None:
    stand_in(f"printf %s {shlex.quote(text)}")
    with pytest.raises(OSError, match="cannot be read"):
        kubectl.job_of(JOBS, "demo", None)


def test_who_may_not_ask_is_told_so(stand_in: Callable[..., Path]) -> None:
    stand_in("echo 'Error from server (Forbidden): pods is forbidden' >&2; exit 1")
    with pytest.raises(MachineError, match="pods is forbidden"):
        kubectl.job_of(JOBS, "demo", None)
