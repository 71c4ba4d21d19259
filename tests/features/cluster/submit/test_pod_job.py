"""What of a job on Kubernetes is refused before anything runs."""

from __future__ import annotations

import dataclasses
from pathlib import PurePosixPath
from typing import Any

import pytest

from torchscale.errors import UsageError
from torchscale.features.cluster.submit.pod_job import (
    LONGEST_JOB_NAME,
    MAX_CONFIG_BYTES,
    PodJob,
    check_pod_job,
    parse_counts,
    parse_pairs,
    parse_time,
)

HOSTILE = (
    "",
    "-x",
    "A_b",
    "a b",
    "a\nb",
    "a\x1b[31mb",
    "a\x00b",
    "a\u202eb",
    "ä",
    "a/../b",
    "x" * 600,
    "$(id)",
    "{a: b}",
)
OPTIONS = {
    "name": "--job-name",
    "image": "--image",
    "namespace": "--namespace",
    "results_claim": "--results-claim",
    "token_secret": "--token-secret",
    "gpu_resource": "--gpu-resource",
    "shm_size": "--shm-size",
}
ALLOWED = {("image", "A_b"), ("image", "a/../b"), ("gpu_resource", "A_b")}
"""Texts above that are valid names there; a registry, not a shell or a path, reads an image's."""


def job(**changes: Any) -> PodJob:
    plain = PodJob(
        name="demo",
        config="experiment_name: demo\n",
        directory=PurePosixPath("demo"),
        image="ghcr.io/you/torchscale:1",
        nodes=2,
        results_claim="results",
        token_secret="torchscale-token",  # noqa: S106 - the name of a Secret
    )
    return dataclasses.replace(plain, **changes)


def test_a_plain_job_is_taken() -> None:
    check_pod_job(job())
    check_pod_job(
        job(
            name="a" * LONGEST_JOB_NAME,
            namespace="lab-1",
            results_claim="team.results",
            shm_size="64Gi",
        )
    )
    check_pod_job(
        job(
            image="reg.example.com:5000/a/b_c@sha256:" + "0" * 64,
            rdma={"rdma/hca_shared_devices_a": 1},
        )
    )


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("field", OPTIONS)
def test_hostile_names_are_one_line_errors(field: str, value: str) -> None:
    if (field, value) in ALLOWED:
        check_pod_job(job(**{field: value}))
        return
    with pytest.raises(UsageError, match=OPTIONS[field]) as caught:
        check_pod_job(job(**{field: value}))
    assert caught.value.message.isprintable()
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"name": "9lives"}, "--job-name"),
        ({"name": "a" * (LONGEST_JOB_NAME + 1)}, "46 characters; Kubernetes takes 45"),
        ({"env": {"A B": "1"}}, "--env 'A B'"),
        ({"env": {"PET_NNODES": "1"}}, "--env PET_NNODES: set by the job itself"),
        ({"env": {"TORCHSCALE_TOKEN": "x"}}, "--env TORCHSCALE_TOKEN: set by the job itself"),
        ({"env": {"A": "\x00"}}, "--env A: a zero byte"),
        ({"env": {f"A{number}": "" for number in range(121)}}, "121 variables"),
        ({"rdma": {"cpu": 1}}, "--rdma 'cpu'"),
        ({"rdma": {"nvidia.com/gpu": 1}}, "--rdma 'nvidia.com/gpu'"),
        ({"node_selector": {"a b": "c"}}, "--node-selector 'a b'"),
        ({"node_selector": {"a": "b\nc"}}, "--node-selector a 'b"),
        ({"shm_size": "0"}, "--shm-size '0'"),
        ({"config": "x" * (MAX_CONFIG_BYTES + 1)}, "1,048,577 bytes; a ConfigMap holds 1,048,576"),
        ({"config": "ä" * (MAX_CONFIG_BYTES // 2 + 1)}, "1,048,578 bytes"),
    ],
)
def test_what_kubernetes_would_refuse_is_refused(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_pod_job(job(**changes))
    assert expected in caught.value.message
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("text", ["/data", "../other", "a/../../b", ".", "-x", "a\nb"])
def test_the_run_folder_is_in_the_claim(text: str) -> None:
    with pytest.raises(UsageError, match="--output-dir"):
        check_pod_job(job(directory=PurePosixPath(text)))


def test_pairs_and_counts() -> None:
    assert parse_pairs("--env", ["A=b=c", "B="], "") == {"A": "b=c", "B": ""}
    assert parse_counts("--rdma", ["rdma/a", "rdma/b=8"], "") == {"rdma/a": 1, "rdma/b": 8}
    for texts in (["A"], ["=1"], ["A=1", "A=2"]):
        with pytest.raises(UsageError, match="--env"):
            parse_pairs("--env", texts, "")
    for text in ("rdma/a=0", "rdma/a=-1", "rdma/a=x", "rdma/a=10000", "rdma/a=1.5"):
        with pytest.raises(UsageError, match="--rdma"):
            parse_counts("--rdma", [text], "")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30", 1800),
        ("1:30", 90),
        ("2:00:00", 7200),
        ("1-0", 86400),
        ("1-12:30", 131400),
        ("1-12:30:01", 131401),
    ],
)
def test_times_are_read_as_slurm_reads_them(text: str, seconds: int) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0:00", "2h", "-5", "1:2:3:4", "٣", "1-"])
def test_other_times_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--time"):
        parse_time(text)
