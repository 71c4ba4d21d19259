"""Actors of Ray, by a module that stands in for it."""

from __future__ import annotations

import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from torchscale.errors import MachineError, UsageError
from torchscale.features.cluster.engines.engine import EngineNode
from torchscale.features.cluster.engines.ray import RayActors, _amounts, _bundle, _said

SOON = 30.0


def resources(**found: float) -> dict[str, Any]:
    """A node of a cluster."""
    return {"Alive": True, "Resources": found}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([resources(CPU=64, GPU=8)], {"GPU": 8, "CPU": 1}),
        ([resources(CPU=64, GPU=8), resources(CPU=32, GPU=4)], {"GPU": 4, "CPU": 1}),
        ([resources(GPU=8)], {"GPU": 8, "CPU": 0}),
        ([resources(CPU=64), resources(CPU=32)], {"CPU": 32}),
        ([resources(CPU=64, GPU=1), resources(CPU=32)], {"CPU": 32}),
    ],
)
def test_a_node_is_asked_for_whole(nodes: list[dict[str, Any]], expected: dict[str, float]) -> None:
    assert _bundle(nodes) == expected


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ({"GPU": 8.0, "CPU": 1.0}, "8 GPUs and 1 CPU"),
        ({"CPU": 2.0, "memory": 1e9}, "2 CPUs"),
        ({}, "no CPU"),
    ],
)
def test_amounts_in_words(found: dict[str, float], text: str) -> None:
    assert _amounts(found) == text


def test_a_reason_is_one_short_line() -> None:
    assert _said(ValueError("\n  the node died. \nand more.")) == "ValueError: the node died"
    assert _said(ValueError("")) == "ValueError: no reason"
    assert len(_said(ValueError("x" * 999))) == 300


class RayError(Exception):
    """Stands in for Ray's."""


class GetTimeoutError(Exception):
    """Stands in for Ray's."""


class Method:
    """A method of an actor, which is called at once."""

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def remote(self, *arguments: Any) -> Callable[[], Any]:
        return lambda: self._call(*arguments)


class Actor:
    """An actor whose agent echoes what it reads."""

    def __init__(self, ray: FakeRay, place: int) -> None:
        self.ray, self.place = ray, place
        self.killed = False
        self.stopped = threading.Event()
        self.started: list[tuple[Any, ...]] = []
        self._there, self._here = socket.socketpair()
        ray.sockets += [self._there, self._here]

    def __getattr__(self, name: str) -> Method:
        return Method(getattr(self, f"do_{name}"))

    def do_node(self) -> tuple[str, str]:
        return f"n{self.place}", f"10.0.0.{self.place}"

    def do_start(self, *arguments: Any) -> None:
        if self.ray.problem:
            raise RayError(self.ray.problem)
        self.started.append(arguments)

    def do_read(self, seconds: float) -> bytes | None:
        self._there.settimeout(seconds)
        if self.killed:
            raise RayError("The actor died")
        try:
            return self._there.recv(100) or None
        except TimeoutError:
            return b""

    def do_write(self, data: bytes) -> None:
        self._here.sendall(data)

    def do_stop(self) -> None:
        self.stopped.set()
        with contextlib.suppress(OSError):
            self._here.shutdown(socket.SHUT_RDWR)

    def do_errors(self) -> str:
        if self.killed:
            raise RayError("The actor died\nat length")
        return "a warning\nthe last line\n\n"


class FakeRay:
    """What is asked of Ray."""

    exceptions = SimpleNamespace(RayError=RayError, GetTimeoutError=GetTimeoutError)

    def __init__(self) -> None:
        self.cluster = [resources(CPU=4, GPU=1), resources(CPU=4, GPU=1), resources(CPU=4)]
        self.here = "10.0.0.1"
        self.problem = ""
        self.is_busy = False
        self.actors: list[Actor] = []
        self.bundles: list[dict[str, float]] = []
        self.removed: list[Any] = []
        self.options: list[dict[str, Any]] = []
        self.sockets: list[socket.socket] = []
        self.util = SimpleNamespace(get_node_ip_address=lambda: self.here)

    def nodes(self) -> list[dict[str, Any]]:
        return self.cluster

    def available_resources(self) -> dict[str, float]:
        return {"CPU": 3.0}

    def get(self, answer: Callable[[], Any], timeout: float) -> Any:
        assert timeout > 0
        return answer()

    def kill(self, actor: Actor) -> None:
        actor.killed = True
        actor.do_stop()

    def remote(self, _: type) -> SimpleNamespace:
        def options(**given: Any) -> SimpleNamespace:
            self.options.append(given)

            def remote() -> Actor:
                place = given["scheduling_strategy"].placement_group_bundle_index
                self.actors.append(Actor(self, place))
                return self.actors[-1]

            return SimpleNamespace(remote=remote)

        return SimpleNamespace(options=options)

    def placement_group(self, bundles: list[dict[str, float]], strategy: str) -> SimpleNamespace:
        assert strategy == "STRICT_SPREAD"
        self.bundles = bundles

        def ready() -> Callable[[], None]:
            return self._place

        return SimpleNamespace(ready=ready)

    def _place(self) -> None:
        if self.is_busy:
            raise GetTimeoutError


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeRay]:
    """Stands in for Ray."""
    made = FakeRay()

    @contextlib.contextmanager
    def connected(_: str | None) -> Iterator[FakeRay]:
        yield made

    monkeypatch.setattr("torchscale.features.cluster.engines.ray.connected", connected)
    modules = {
        "ray": SimpleNamespace(),
        "ray.util": SimpleNamespace(
            placement_group=made.placement_group, remove_placement_group=made.removed.append
        ),
        "ray.util.scheduling_strategies": SimpleNamespace(
            PlacementGroupSchedulingStrategy=SimpleNamespace
        ),
    }
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    yield made
    for line in made.sockets:
        line.close()


def test_nodes_with_gpus_are_asked_for_and_this_machine_is_first(ray: FakeRay) -> None:
    engine = RayActors("sweep", None, None)
    assert [(node.name, node.address) for node in engine.nodes] == [
        ("n1", "10.0.0.1"),
        ("n0", "10.0.0.0"),
    ]
    assert ray.bundles == [{"GPU": 1, "CPU": 1}] * 2
    assert {(each["num_gpus"], each["num_cpus"]) for each in ray.options} == {(1, 1)}
    engine.close()
    assert all(actor.killed for actor in ray.actors)
    assert len(ray.removed) == 1


def test_dead_nodes_are_none(ray: FakeRay) -> None:
    ray.cluster[0]["Alive"] = False
    assert len(RayActors("sweep", None, None).nodes) == 1


def test_a_head_without_cores_is_no_node(ray: FakeRay) -> None:
    """Ray refuses a bundle of nothing."""
    ray.cluster = [resources(CPU=0), resources(), resources(CPU=4), resources(CPU=2)]
    assert len(RayActors("sweep", None, None).nodes) == 2
    assert ray.bundles == [{"CPU": 2}] * 2
    ray.cluster = [resources()]
    with pytest.raises(MachineError, match="no node of the Ray cluster has a GPU or a CPU, of 1 n"):
        RayActors("sweep", None, None)


def test_more_nodes_than_there_are_are_refused(ray: FakeRay) -> None:
    with pytest.raises(UsageError, match="--nnodes 3: the Ray cluster has 2 nodes with GPUs"):
        RayActors("sweep", 3, None)
    ray.cluster = [resources(CPU=1)]
    with pytest.raises(UsageError, match="--nnodes 3: the Ray cluster has 1 nodes"):
        RayActors("sweep", 3, None)


def test_nodes_that_are_not_free_are_named(ray: FakeRay) -> None:
    ray.is_busy = True
    with pytest.raises(
        MachineError,
        match=r"has not 2 nodes with 1 GPU and 1 CPU free within 60 s: free in all are 3 CPUs",
    ):
        RayActors("sweep", None, None)
    assert len(ray.removed) == 1


def test_what_is_sent_reaches_the_agent_and_back(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("TORCHSCALE_TOKEN", "secret")
    engine = RayActors("check", 1, None)
    with engine.open(0) as line:
        line.settimeout(SOON)
        line.sendall(b"hello")
        assert line.recv(100) == b"hello"
        ((arguments, _, variables),) = ray.actors[0].started
        assert arguments == ["torchscale.features.cluster.engines.agent", "check", "detached"]
        assert variables["NCCL_DEBUG"] == "INFO"
        assert not {"TORCHSCALE_TOKEN", "PATH", "OMP_NUM_THREADS"} & variables.keys()
    assert ray.actors[0].stopped.wait(SOON)  # its input has ended
    engine.close()


def test_an_agent_that_ends_ends_the_line(ray: FakeRay) -> None:
    engine = RayActors("check", 1, None)
    with engine.open(0) as line:
        line.settimeout(SOON)
        ray.actors[0].do_stop()
        assert line.recv(100) == b""
    assert engine.why_ended(0) == "the last line"
    engine.close()


def test_a_node_is_started_again_in_a_new_actor(ray: FakeRay) -> None:
    engine = RayActors("check", 2, None)
    with engine.open(0) as first:
        first.settimeout(SOON)
        ray.kill(ray.actors[1])  # of the node that is first
        assert first.recv(100) == b""
    assert engine.why_ended(0) == "RayError: The actor died"
    with engine.open(0):
        assert [actor.place for actor in ray.actors] == [0, 1, 1]
        assert ray.actors[2].started
    engine.close()


def test_an_interruption_within_ray_is_one(ray: FakeRay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python reports it so where code in C goes on after a handler has raised."""

    def start(*_: object) -> None:
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    monkeypatch.setattr(Actor, "do_start", start)
    engine = RayActors("sweep", None, None)
    with pytest.raises(KeyboardInterrupt):
        engine.open(0)
    engine.close()


def test_a_node_that_is_gone_is_not_waited_for(ray: FakeRay) -> None:
    engine = RayActors("sweep", None, None)
    engine.open(0).close()
    ray.cluster[0]["Alive"] = False
    with pytest.raises(MachineError, match="the Ray cluster has 1 node left"):
        engine.open(0)
    assert len(ray.actors) == 2
    engine.close()


def test_another_node_in_the_place_of_one_is_known(
    ray: FakeRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its address is where the launches of a first node meet."""
    engine = RayActors("sweep", None, None)
    engine.open(0).close()
    monkeypatch.setattr(Actor, "do_node", lambda _: ("n7", "10.0.0.7"))
    with engine.open(0):
        assert engine.nodes[0] == EngineNode("n7", "10.0.0.7")
    engine.close()


def test_an_agent_that_cannot_be_started_is_named(ray: FakeRay) -> None:
    engine = RayActors("check", 1, None)
    ray.problem = "No module named torchscale"
    with pytest.raises(
        MachineError, match="Ray cannot start its agent: RayError: No module named torchscale"
    ):
        engine.open(0)
    ray.problem = ""
    with engine.open(0):  # the actor may be what failed
        assert [bool(actor.started) for actor in ray.actors] == [False, True]
    engine.close()
