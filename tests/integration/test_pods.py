"""What the pods of a job on Kubernetes run, in namespaces that stand for pods.

Each has its own network, host name, processes (the manifest's shell is process 1, as in a
container) and ``/etc/hosts``, in which the name of pod 0 appears only after the pods have started.
Paths of the manifest are replaced by such of the test.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests import network
from tests.integration.conftest import Program
from tests.integration.test_nodes import END_SECONDS, TOKEN, Started, config, wait_for

pytestmark = pytest.mark.integration


class Pods:
    """Starts the container of a rendered Indexed Job as pod 0 or 1."""

    def __init__(self, program: Program, cluster: network.Cluster) -> None:
        self.directory, self._program, self._cluster = program.directory, program, cluster
        self._started: list[Started] = []
        (self.directory / "results").mkdir()
        self.hosts.write_text("127.0.0.1 localhost\n")
        command = self.directory / "bin" / "torchscale"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m torchscale "$@"\n')
        command.chmod(0o755)

    @property
    def hosts(self) -> Path:
        return self.directory / "hosts"

    @property
    def hold(self) -> Path:
        """While this file exists, launches stop at a step."""
        return self.directory / "hold"

    def message(self, index: int) -> Path:
        """What a pod leaves for those who ask how it ended."""
        return self.directory / f"message-{index}"

    def render(self, name: str) -> dict[str, Any]:
        """The container of a config's job; its ConfigMap is written where the pods look for it."""
        options = [
            "--engine",
            "kubernetes-job",
            "--image",
            "i",
            "--results-claim",
            "r",
            "--nodes",
            "2",
            "--job-name",
            "demo",
        ]
        done = self._program.run("submit", name, *options, "--print")
        assert done.returncode == 0, done.stderr
        objects = {document["kind"]: document for document in yaml.safe_load_all(done.stdout)}
        (self.directory / "config.yaml").write_text(objects["ConfigMap"]["data"]["config.yaml"])
        (container,) = objects["Job"]["spec"]["template"]["spec"]["containers"]
        return dict(container)

    def start(self, container: dict[str, Any], index: int) -> Started:
        node = self._cluster.nodes[index]
        paths = {
            "/etc/torchscale/config.yaml": self.directory / "config.yaml",
            "/dev/termination-log": self.message(index),
            "/results": self.directory / "results",
        }
        argv = [*container["command"], *container["args"]]
        for place, path in paths.items():
            argv = [word.replace(place, str(path)) for word in argv]
        variables = {entry["name"]: entry.get("value", "") for entry in container["env"]}
        env = {
            **self._program.env(),
            **variables,
            "PET_NODE_RANK": str(index),
            "TORCHSCALE_TOKEN": TOKEN,
            "TORCHSCALE_TEST_HOLD": str(self.hold),
            "PATH": f"{self.directory / 'bin'}:{os.environ['PATH']}",
        }
        pod = f'mount --bind {shlex.quote(str(self.hosts))} /etc/hosts && exec "$@"'
        unshare = [
            network.tool("unshare"),
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ]
        path = self.directory / f"output-{len(self._started)}.txt"
        with path.open("w") as output:
            process = subprocess.Popen(
                node.argv(*unshare, "sh", "-c", pod, "pod", *argv),
                env=env,
                stdout=output,
                stderr=output,
            )
        self._started.append(Started(process, path))
        return self._started[-1]

    def signal(self, started: Started, number: int) -> None:
        """To process 1 of a pod."""
        first = psutil.Process(started.process.pid)
        while first.name() != "sh":
            (first,) = first.children()
        first.send_signal(number)

    def records(self) -> list[dict[str, Any]]:
        paths = sorted(
            (self.directory / "results" / "run" / "cells").glob("*/launch-*/record.json")
        )
        return [json.loads(path.read_text()) for path in paths]

    def end(self) -> None:
        for started in self._started:
            if started.process.poll() is None:
                started.process.kill()
            started.process.wait(timeout=END_SECONDS)


@pytest.fixture
def pods(program: Program) -> Iterator[Pods]:
    """Two pods; nothing of them may run afterwards."""
    with network.cluster(2) as cluster:
        pods = Pods(program, cluster)
        try:
            yield pods
        finally:
            pods.end()
    wait_for(lambda: program.leftovers() == [], "the end of the pods", 30)


@pytest.mark.campaign
def test_a_job_whose_pods_are_stopped_continues_in_new_pods(pods: Pods, program: Program) -> None:
    """The name of pod 0 appears late; the pod of node 0 gets TERM in the middle of a launch over
    both."""
    pods.hold.touch()
    container = pods.render(config(program, models=["held:build"], gpu_counts=[2]))
    second = pods.start(container, 1)
    first = pods.start(container, 0)
    wait_for(
        lambda: "Waiting for node 0" in second.output or second.process.poll() is not None,
        "a pod that waits",
    )
    assert second.process.poll() is None, second.output
    with pods.hosts.open("a") as hosts:  # in place: the pods have this file mounted
        hosts.write("10.77.0.1 demo-0.demo\n")
    wait_for(
        lambda: all((program.directory / f"held-{rank}").exists() for rank in (0, 1)),
        "the held step",
    )

    pods.signal(first, signal.SIGTERM)
    assert (first.end(), second.end()) == (130, 75), first.output + second.output
    assert pods.message(0).read_text() == "130\n"
    assert not pods.message(1).exists()
    assert [record["state"] for record in pods.records()] == ["interrupted"]

    pods.hold.unlink()
    first, second = pods.start(container, 0), pods.start(container, 1)
    assert (first.end(), second.end()) == (0, 0), first.output + second.output
    assert pods.message(0).read_text() == "0\n"
    (record,) = pods.records()
    assert record["state"] == "ok"
    assert [rank["hostname"] for rank in record["payload"]["ranks"]] == ["n0", "n1"]
