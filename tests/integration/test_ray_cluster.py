"""The cluster of :mod:`tests.ray_cluster` is what tests of Ray take it for: nodes with names and
addresses of their own, which can be lost, and of which nothing is left."""

from __future__ import annotations

import json
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest

from tests.ray_cluster import RayCluster, ray_cluster

pytest.importorskip("ray")
pytestmark = [pytest.mark.integration, pytest.mark.slow]

LOST_SECONDS = 10
"""From the end of all processes of a node to the error that says so to whoever called there: 1 to
2 s on an idle machine, three health checks that find nobody."""
_ANSWER_SECONDS = 60
_END_SECONDS = 5
"""What is killed is a process until its memory is freed."""

_DRIVER = """\
import json, logging, os, socket, subprocess, sys, time
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy as InGroup

ray.init(log_to_driver=False, logging_level=logging.ERROR)

@ray.remote(num_cpus=1)
class Actor:
    def start(self):
        self.child = subprocess.Popen(["sleep", "300"], start_new_session=True)
        address = socket.gethostbyname(socket.gethostname())
        return {"name": socket.gethostname(), "address": address, "pid": os.getpid(),
                "child": self.child.pid}

    def wait(self):
        return self.child.wait()

def say(**what):
    print("@" + json.dumps(what), flush=True)

def lost(actor):
    while True:
        try:
            ray.get(actor.wait.remote(), timeout=60)
        except ray.exceptions.ActorUnavailableError:
            time.sleep(0.1)
        except ray.exceptions.ActorDiedError as error:
            return str(error)

here = ray.util.get_node_ip_address()
group = placement_group(
    [{"CPU": 1, f"node:{here}": 0.001}, {"CPU": 1}], strategy="STRICT_SPREAD"
)
ray.get(group.ready(), timeout=30)
actors = [Actor.options(scheduling_strategy=InGroup(group, i)).remote() for i in range(2)]
say(actors=ray.get([actor.start.remote() for actor in actors], timeout=30))
say(lost=lost(actors[1]))
sys.stdin.read()
"""

_COUNT = """\
import os
from ray._raylet import GcsClient
client = GcsClient(address=os.environ["RAY_ADDRESS"])
print(sum(info.state == 0 for info in client.get_all_node_info(timeout=5).values()))
"""
"""A driver that is refused tries again for 20 s."""


@contextmanager
def _driver(cluster: RayCluster) -> Iterator[subprocess.Popen[str]]:
    """A program on the first node that connects to the cluster."""
    process = subprocess.Popen(
        cluster.argv(cluster.nodes[0], sys.executable, "-c", _DRIVER),
        env=cluster.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def _said(driver: subprocess.Popen[str]) -> dict[str, Any]:
    """What the driver says next. Ray prints its own news to the same stream."""
    assert driver.stdout is not None
    assert driver.stderr is not None
    for line in driver.stdout:
        if line.startswith("@"):
            said: dict[str, Any] = json.loads(line[1:])
            return said
    raise AssertionError(driver.stderr.read())


def _nodes(cluster: RayCluster, **variables: str) -> subprocess.CompletedProcess[str]:
    """How many nodes are alive, asked from the first."""
    return subprocess.run(
        cluster.argv(cluster.nodes[0], sys.executable, "-c", _COUNT),
        env={**cluster.environment, **variables},
        capture_output=True,
        text=True,
        timeout=_ANSWER_SECONDS,
        check=False,
    )


def test_an_actor_on_each_node_and_a_node_that_is_killed() -> None:
    with ray_cluster(2) as cluster:
        first, second = cluster.nodes
        ran = cluster.processes(*cluster.nodes)
        with _driver(cluster) as driver:
            actors = _said(driver)["actors"]

            assert [(actor["name"], actor["address"]) for actor in actors] == [
                ("n0", first.address),
                ("n1", second.address),
            ]
            for node, actor in zip(cluster.nodes, actors, strict=True):
                assert actor["pid"] in cluster.workers(node)
                assert actor["child"] in [process.pid for process in cluster.processes(node)]
            ran += [psutil.Process(actor[name]) for actor in actors for name in ("pid", "child")]

            killed = time.monotonic()
            cluster.kill_node(second)

            assert not cluster.processes(second)
            assert "its node has died" in _said(driver)["lost"]
            assert time.monotonic() - killed < LOST_SECONDS
    assert not cluster.directory.exists()
    _, left = psutil.wait_procs(ran, _END_SECONDS)
    assert not left


def test_clusters_beside_each_other_of_which_one_needs_a_token() -> None:
    token = secrets.token_hex(16)
    with ray_cluster(2, head_cpus=0) as open_to_all:
        with ray_cluster(2, token=token) as closed:
            assert _nodes(closed).stdout == "2\n"
            refused = _nodes(closed, RAY_AUTH_TOKEN=secrets.token_hex(16))
            assert "AuthenticationError" in refused.stderr

            closed.stop_node(closed.nodes[1])

            assert not closed.processes(closed.nodes[1])
            assert closed.raylet(closed.nodes[0])
        assert _nodes(open_to_all).stdout == "2\n"
        assert [open_to_all.raylet(node) for node in open_to_all.nodes]
