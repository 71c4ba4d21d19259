"""What ``submit`` does around kubectl: defaults, what is checked before, exit codes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.factories import experiment
from torchscale.config.load import load_experiment
from torchscale.errors import UsageError
from torchscale.features.cluster.submit import kubectl
from torchscale.features.cluster.submit.cluster_job import ClusterJob
from torchscale.features.cluster.submit.engine import (
    IndexedJobOptions,
    JobOptions,
    KubernetesOptions,
    SubmitOptions,
    SubmittedState,
    TrainJobOptions,
)
from torchscale.features.cluster.submit.kubernetes_engine import (
    KubernetesEngine,
    pod_job,
    prepare_indexed_job,
    prepare_train_job,
)

OPTIONS = SubmitOptions(
    JobOptions(nodes=2, image="image"), kubernetes=KubernetesOptions(results_claim="results")
)
PREPARE = {"jobs.batch": prepare_indexed_job, "trainjobs.trainer.kubeflow.org": prepare_train_job}


def objects(engine: KubernetesEngine) -> dict[str, Any]:
    return {document["kind"]: document for document in yaml.safe_load_all(engine.render())}


@pytest.mark.parametrize("prepare", PREPARE.values())
def test_the_config_map_carries_the_whole_experiment(tmp_path: Path, prepare: Any) -> None:
    wanted = experiment(gpu_counts=[1, 16])
    config = tmp_path / "config.yaml"
    config.write_text(objects(prepare(wanted, OPTIONS, None))["ConfigMap"]["data"]["config.yaml"])
    assert load_experiment(config) == wanted


def test_defaults() -> None:
    job = pod_job(experiment(experiment_name="My_Run"), OPTIONS, None)
    assert (job.name, str(job.directory)) == ("torchscale-my-run", "My_Run")
    assert (job.token_secret, job.gpu_resource, job.deadline_seconds) == (
        "torchscale-token",
        "nvidia.com/gpu",
        None,
    )
    assert (
        objects(prepare_indexed_job(experiment(), OPTIONS, None))["Job"]["spec"]["backoffLimit"]
        == 6
    )
    spec = objects(prepare_train_job(experiment(), OPTIONS, None))["TrainJob"]["spec"]
    assert spec["runtimeRef"]["name"] == "torch-distributed"


def test_options_reach_the_manifests() -> None:
    options = replace(
        OPTIONS,
        job=JobOptions(nodes=2, image="image", time="2:00:00", gpus_per_node=8),
        kubernetes=KubernetesOptions(
            results_claim="r", rdma=("rdma/a=2",), env=("A=1",), gpu_resource="amd.com/gpu"
        ),
        indexed_job=IndexedJobOptions(restarts=0),
        train_job=TrainJobOptions(runtime="mine"),
    )
    spec = objects(prepare_indexed_job(experiment(), options, Path("runs/a")))["Job"]["spec"]
    assert (spec["backoffLimit"], spec["activeDeadlineSeconds"]) == (0, 7200)
    (container,) = spec["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"amd.com/gpu": "8", "rdma/a": "2"}
    assert container["args"][3] == "/results/runs/a"
    assert (
        objects(prepare_train_job(experiment(), options, None))["TrainJob"]["spec"]["runtimeRef"][
            "name"
        ]
        == "mine"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"job": JobOptions(nodes=2)}, "--image is missing"),
        ({"kubernetes": KubernetesOptions()}, "--results-claim is missing"),
        ({"job": JobOptions(nodes=0, image="i")}, "--nodes 0"),
        ({"kubernetes": KubernetesOptions(results_claim="r", run_as_user=0)}, "--run-as-user 0"),
        ({"kubernetes": KubernetesOptions(results_claim="r", env=("A",))}, "--env 'A'"),
        (
            {"kubernetes": KubernetesOptions(results_claim="r", rdma=("rdma/a=x",))},
            "--rdma rdma/a=x",
        ),
        ({"job": JobOptions(image="i", time="2h")}, "--time '2h'"),
        ({"indexed_job": IndexedJobOptions(restarts=-1)}, "--restarts -1"),
        ({"job": JobOptions(image="i", job_name="A_b")}, "--job-name 'A_b'"),
    ],
)
def test_wrong_options_are_one_line_errors(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        prepare_indexed_job(experiment(), replace(OPTIONS, **changes), None)
    assert expected in caught.value.message


def test_a_runtime_that_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="--runtime 'A b'"):
        prepare_train_job(experiment(), replace(OPTIONS, train_job=TrainJobOptions("A b")), None)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("resource", PREPARE)
def test_what_is_needed_is_checked_before_anything_is_applied(
    monkeypatch: pytest.MonkeyPatch, resource: str, nodes: int
) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(kubectl, "check_new", lambda *texts: calls.append(("new", *texts)))
    monkeypatch.setattr(kubectl, "check_secret", lambda *texts: calls.append(("secret", *texts)))
    monkeypatch.setattr(kubectl, "apply", lambda text, namespace: calls.append((text, namespace)))
    options = replace(
        OPTIONS,
        job=JobOptions(nodes=nodes, image="image", job_name="demo"),
        kubernetes=KubernetesOptions(results_claim="r", namespace="lab"),
    )
    engine = PREPARE[resource](experiment(experiment_name="x"), options, None)
    job = engine.submit()
    secret = [("secret", "torchscale-token", "lab")] if nodes > 1 else []
    assert calls == [("new", resource, "demo", "lab"), *secret, (engine.render(), "lab")]
    assert (job.job_id, job.results) == ("demo", "x in the claim r")
    assert (
        job.log
        == "kubectl logs --namespace lab --selector app.kubernetes.io/instance=demo --prefix "
        "--follow"
    )


@pytest.mark.parametrize(
    ("resource", "found", "exit_code"),
    [
        ("jobs.batch", ClusterJob("t", None, True, 130), None),
        ("jobs.batch", ClusterJob("t", "Complete", True, 0), 0),
        ("jobs.batch", ClusterJob("t", "Complete", True, None), 0),
        ("jobs.batch", ClusterJob("t", "Failed", True, 3), 3),
        ("jobs.batch", ClusterJob("t", "Failed", True, 0), 1),
        ("jobs.batch", ClusterJob("t", "Failed", True, None), 1),
        ("jobs.batch", ClusterJob("t", None, False, None), 1),
        ("trainjobs.trainer.kubeflow.org", ClusterJob("t", "Complete", True, 1), 1),
        ("trainjobs.trainer.kubeflow.org", ClusterJob("t", "Complete", True, 0), 0),
        ("trainjobs.trainer.kubeflow.org", ClusterJob("t", "Complete", True, None), 1),
    ],
)
def test_the_exit_code_is_node_0s_and_never_0_for_what_is_not_known(
    monkeypatch: pytest.MonkeyPatch, resource: str, found: ClusterJob, exit_code: int | None
) -> None:
    engine = PREPARE[resource](experiment(), OPTIONS, None)
    asked: list[tuple[Any, ...]] = []
    monkeypatch.setattr(kubectl, "job_of", lambda *what: asked.append(what) or found)  # type: ignore[func-returns-value]
    monkeypatch.setattr(kubectl, "check_new", lambda *texts: None)
    monkeypatch.setattr(kubectl, "check_secret", lambda *texts: None)
    monkeypatch.setattr(kubectl, "apply", lambda *texts: None)
    job = engine.submit()
    assert engine.state(job) == SubmittedState("t", exit_code)
    assert asked == [(resource, job.job_id, None)]
