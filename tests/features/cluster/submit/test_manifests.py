"""Manifests: what the published schemas say of them, and what a pod's shell runs."""

from __future__ import annotations

import copy
import os
import re
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.features.cluster.submit.schemas import problems
from tests.features.cluster.submit.test_pod_job import job
from torchscale.errors import UsageError
from torchscale.features.cluster.cluster import find_cluster
from torchscale.features.cluster.submit.manifests import indexed_job, to_yaml, train_job
from torchscale.features.cluster.submit.pod_job import PodJob
from torchscale.measure.nodes import NodeOptions

EVERYTHING: dict[str, Any] = {
    "namespace": "lab",
    "nodes": 4,
    "gpus_per_node": 8,
    "cpus_per_node": 96,
    "rdma": {"rdma/hca_shared_devices_a": 1},
    "shm_size": "64Gi",
    "env": {
        "NCCL_DEBUG": "INFO",
        "A": "$(HOME) $$x $",
        "B": "1e3",
        "C": "",
        "D": "on",
        "E": "a\nb: {c}",
    },
    "node_selector": {"gpu.example.com/model": "h100"},
    "run_as_user": 1000,
    "deadline_seconds": 7200,
}
KINDS: dict[str, Callable[[PodJob], list[Any]]] = {
    "train-job": lambda each: list(train_job(each, "torch-distributed")),
    "indexed-job": lambda each: list(indexed_job(each, 3)),
}


def documents(kind: str, **changes: Any) -> list[dict[str, Any]]:
    """As a reader of the YAML sees them."""
    return list(yaml.safe_load_all(to_yaml(KINDS[kind](job(**changes)))))


def objects(kind: str, **changes: Any) -> dict[str, dict[str, Any]]:
    return {document["kind"]: document for document in documents(kind, **changes)}


def container(kind: str, **changes: Any) -> dict[str, Any]:
    """What the pods' container is started with."""
    found = objects(kind, **changes)
    if kind == "train-job":
        return dict(found["TrainJob"]["spec"]["trainer"])
    return dict(found["Job"]["spec"]["template"]["spec"]["containers"][0])


def pod(kind: str, **changes: Any) -> dict[str, Any]:
    """The pods' specification, or what a TrainJob adds to it."""
    found = objects(kind, **changes)
    if kind == "indexed-job":
        return dict(found["Job"]["spec"]["template"]["spec"])
    (patch,) = found["TrainJob"]["spec"]["runtimePatches"]
    (node,) = patch["trainingRuntimeSpec"]["template"]["spec"]["replicatedJobs"]
    assert node["name"] == "node"
    return dict(node["template"]["spec"]["template"]["spec"])


def expanded(text: str) -> str:
    """Text as Kubernetes gives it to a container: it replaces ``$(NAME)`` of a variable, and reads
    ``$$`` as ``$``."""
    return re.sub(
        r"\$\$|\$\((\w+)\)", lambda match: "$" if match[0] == "$$" else f"<{match[1]}>", text
    )


@pytest.mark.parametrize(
    "changes", [{}, {"nodes": 1}, EVERYTHING], ids=["two", "one", "everything"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_published_schemas_take_every_manifest(kind: str, changes: dict[str, Any]) -> None:
    for document in documents(kind, **changes):
        assert problems(document) == []


@pytest.mark.parametrize(
    ("kind", "path", "value", "expected"),
    [
        ("train-job", ("TrainJob", "spec", "trainer", "numNode"), 4, "'numNode' was unexpected"),
        (
            "train-job",
            ("TrainJob", "spec", "trainer", "numNodes"),
            "4",
            "'4' is not of type 'integer'",
        ),
        ("train-job", ("TrainJob", "spec", "trainer", "command"), "sh", "is not of type 'array'"),
        (
            "train-job",
            ("TrainJob", "spec", "runtimeRef", "name"),
            None,
            "'name' is a required property",
        ),
        (
            "train-job",
            ("TrainJob", "spec", "runtimeRef"),
            None,
            "'runtimeRef' is a required property",
        ),
        (
            "train-job",
            ("TrainJob", "spec", "podSpecOverrides"),
            [],
            "'podSpecOverrides' was unexpected",
        ),
        (
            "train-job",
            ("TrainJob", "spec", "trainer", "resourcesPerNode", "limits", "cpu"),
            "many",
            "does not match",
        ),
        ("train-job", ("TrainJob", "metadata", "label"), {}, "'label' was unexpected"),
        ("indexed-job", ("Job", "spec", "completion"), 4, "'completion' was unexpected"),
        ("indexed-job", ("Job", "spec", "completions"), "4", "'4' is not of type 'integer'"),
        ("indexed-job", ("Job", "spec", "template"), None, "'template' is a required property"),
        (
            "indexed-job",
            ("Job", "spec", "template", "spec", "containers"),
            None,
            "'containers' is a required",
        ),
        (
            "indexed-job",
            ("Job", "spec", "template", "spec", "hostNetworking"),
            True,
            "was unexpected",
        ),
        ("indexed-job", ("Job", "apiVersion"), None, ""),
        ("indexed-job", ("Service", "spec", "clusterIP"), 0, "0 is not of type 'string'"),
        ("indexed-job", ("Service", "spec", "selectors"), {}, "'selectors' was unexpected"),
        ("indexed-job", ("ConfigMap", "data", "config.yaml"), {"a": 1}, "is not of type 'string'"),
    ],
)
def test_a_broken_manifest_is_refused_by_the_same_check(
    kind: str, path: tuple[str, ...], value: Any, expected: str
) -> None:
    broken = copy.deepcopy(objects(kind, **EVERYTHING))
    parent: Any = broken
    for key in path[:-1]:
        parent = parent[key]
    if value is None:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    if path[-1] == "apiVersion":
        with pytest.raises(KeyError):
            problems(broken[path[0]])
        return
    found = problems(broken[path[0]])
    assert len(found) >= 1
    assert any(expected in problem for problem in found), found


@pytest.mark.parametrize("kind", KINDS)
def test_every_pod_runs_the_same_command(kind: str) -> None:
    started = container(kind, **EVERYTHING)
    assert started["image"] == "ghcr.io/you/torchscale:1"
    assert started["command"][:2] == ["sh", "-c"]
    assert started["args"] == [
        *(
            "benchmark",
            "/etc/torchscale/config.yaml",
            "--output-dir",
            "/results/demo",
            "--nnodes",
            "4",
        ),
    ]
    limits = started["resources" if kind == "indexed-job" else "resourcesPerNode"]["limits"]
    assert limits == {"cpu": "96", "nvidia.com/gpu": "8", "rdma/hca_shared_devices_a": "1"}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_given_is_left_to_the_cluster(kind: str) -> None:
    text = to_yaml(KINDS[kind](job()))
    for key in (
        "limits",
        "securityContext",
        "nodeSelector",
        "activeDeadlineSeconds",
        "sizeLimit",
        "namespace",
    ):
        assert key not in text


@pytest.mark.parametrize("kind", KINDS)
def test_the_token_is_a_reference_and_only_for_several_nodes(kind: str) -> None:
    (token,) = [entry for entry in container(kind)["env"] if entry["name"] == "TORCHSCALE_TOKEN"]
    assert token["valueFrom"] == {"secretKeyRef": {"name": "torchscale-token", "key": "token"}}
    assert "value" not in token
    assert "TORCHSCALE_TOKEN" not in to_yaml(KINDS[kind](job(nodes=1)))


@pytest.mark.parametrize("kind", KINDS)
def test_values_reach_the_pod_as_they_were_given(kind: str) -> None:
    """Through YAML, where ``1e3`` and ``on`` are text, and through Kubernetes, which replaces
    ``$(NAME)``."""
    env = {
        entry["name"]: entry["value"]
        for entry in container(kind, **EVERYTHING)["env"]
        if "value" in entry
    }
    assert {name: expanded(env[name]) for name in EVERYTHING["env"]} == EVERYTHING["env"]
    text = to_yaml(KINDS[kind](job(**EVERYTHING)))
    assert 'value: "1e3"\n' in text
    assert 'value: "on"\n' in text


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_is_carried_to_the_letter(kind: str) -> None:
    for config in (
        "a: 1\n",
        "  a: b",
        "a: 'x'\n\n\n",
        "tab:\t1\n",
        "a: ü\u0085\u2028\n",
        "a: $(HOME)\n---\nb: |\n  c\n",
    ):
        assert objects(kind, config=config)["ConfigMap"]["data"] == {"config.yaml": config}


@pytest.mark.parametrize("kind", KINDS)
def test_pods_have_shared_memory_results_and_time_to_stop(kind: str) -> None:
    spec = pod(kind, **EVERYTHING)
    volumes = {volume.pop("name"): volume for volume in spec["volumes"]}
    assert volumes == {
        "torchscale-config": {"configMap": {"name": "demo"}},
        "torchscale-results": {"persistentVolumeClaim": {"claimName": "results"}},
        "torchscale-shm": {"emptyDir": {"medium": "Memory", "sizeLimit": "64Gi"}},
    }
    (node,) = spec["containers"]
    mounts = {mount["name"]: mount["mountPath"] for mount in node["volumeMounts"]}
    assert mounts == {
        "torchscale-config": "/etc/torchscale",
        "torchscale-results": "/results",
        "torchscale-shm": "/dev/shm",
    }
    assert node["securityContext"] == {"capabilities": {"add": ["IPC_LOCK"]}}
    assert spec["terminationGracePeriodSeconds"] == 120
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["fsGroup"] == 1000
    (rule,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["labelSelector"]["matchLabels"] == {"app.kubernetes.io/instance": "demo"}


def test_the_pods_of_an_indexed_job_know_their_node() -> None:
    found = objects("indexed-job", nodes=4)
    spec = found["Job"]["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    assert spec["backoffLimit"] == 12
    template = spec["template"]
    assert found["Service"]["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert template["spec"]["subdomain"] == found["Service"]["metadata"]["name"]
    assert found["Service"]["spec"]["clusterIP"] == "None"
    entries = {entry["name"]: entry for entry in container("indexed-job", nodes=4)["env"]}
    path = entries["PET_NODE_RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert path == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    env = {name: entry["value"] for name, entry in entries.items() if "value" in entry} | {
        "PET_NODE_RANK": "2"
    }
    cluster = find_cluster(NodeOptions(nodes=4), None, env)
    assert cluster is not None
    assert (cluster.node_rank, cluster.master, cluster.is_named_later) == (
        2,
        "demo-0.demo:29500",
        True,
    )


def test_a_train_job_sets_nothing_that_its_webhook_refuses() -> None:
    """Kubeflow sets PET_* itself, takes no variables in a patch, and wants a manager as
    ``domain/path``."""
    found = objects("train-job", **EVERYTHING)["TrainJob"]["spec"]
    assert not [entry for entry in found["trainer"]["env"] if entry["name"].startswith("PET_")]
    (patch,) = found["runtimePatches"]
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9/._~-]+", patch["manager"])
    assert "env" not in pod("train-job", **EVERYTHING)["containers"][0]


def test_a_job_that_would_be_refused_is_not_rendered() -> None:
    for render in KINDS.values():
        with pytest.raises(UsageError, match="--job-name"):
            render(job(name="No_Label"))


@pytest.fixture
def in_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., subprocess.Popen[str]]:
    """Starts what a pod's container runs, with a stand-in for torchscale."""
    (tmp_path / "results").mkdir()

    def start(kind: str, node_rank: int, body: str) -> subprocess.Popen[str]:
        program = tmp_path / "torchscale"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        started = container(kind)
        script = expanded(started["command"][2])
        for path in ("/results", "/dev/termination-log"):
            assert path in script
            script = script.replace(path, shlex.quote(str(tmp_path / path.rpartition("/")[2])))
        argv = [
            *started["command"][:2],
            script,
            *started["command"][3:],
            *map(expanded, started["args"]),
        ]
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PET_NODE_RANK": str(node_rank)}
        return subprocess.Popen(
            argv, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True
        )

    return start


@pytest.mark.parametrize(
    ("kind", "node_rank", "code", "left"),
    [
        ("indexed-job", 0, 0, 0),
        ("indexed-job", 0, 1, 1),
        ("indexed-job", 0, 130, 130),
        ("indexed-job", 1, 0, 0),
        ("indexed-job", 1, 1, 0),
        ("indexed-job", 1, 3, 75),
        ("indexed-job", 1, 130, 75),
        ("train-job", 0, 0, 0),
        ("train-job", 0, 1, 0),
        ("train-job", 0, 3, 3),
        ("train-job", 1, 1, 0),
        ("train-job", 1, 130, 130),
    ],
)
def test_a_pod_leaves_what_its_job_needs_to_know(
    in_pod: Callable[..., subprocess.Popen[str]],
    tmp_path: Path,
    kind: str,
    node_rank: int,
    code: int,
    left: int,
) -> None:
    process = in_pod(kind, node_rank, f'echo "$@"; exit {code}')
    output, _ = process.communicate(timeout=30)
    assert output == "benchmark /etc/torchscale/config.yaml --output-dir /results/demo --nnodes 2\n"
    assert process.returncode == left
    message = tmp_path / "termination-log"
    assert (message.read_text() if message.exists() else None) == (
        f"{code}\n" if node_rank == 0 else None
    )


@pytest.mark.parametrize("kind", KINDS)
def test_term_reaches_the_benchmark_and_its_end_is_waited_for(
    in_pod: Callable[..., subprocess.Popen[str]], tmp_path: Path, kind: str
) -> None:
    body = "trap 'echo stopping; exit 130' TERM; echo ready; while :; do sleep 0.05; done"
    process = in_pod(kind, 0, body)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=30)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=10)
    assert (output, process.returncode) == ("stopping\n", 130)
    assert (tmp_path / "termination-log").read_text() == "130\n"
