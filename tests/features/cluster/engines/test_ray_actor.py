"""The actor that keeps an agent, as a plain object."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from torchscale.features.cluster.engines.ray_actor import AgentActor, node_environment
from torchscale.util.processes.subprocesses import wait_until

SOON = 30.0
AGENT = """
import os, sys
sys.stderr.write("what it says\\n")
sys.stderr.flush()
print(os.getpid(), os.getcwd(), os.environ.get("OMP_NUM_THREADS"), flush=True)
for line in sys.stdin:
    sys.stdout.write(line.upper())
    sys.stdout.flush()
"""
"""Answers."""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module that stands in for the agent."""
    (tmp_path / "stand_in.py").write_text(AGENT)
    monkeypatch.setattr(
        "torchscale.features.cluster.engines.ray_actor.node_environment",
        lambda: {"PYTHONPATH": str(tmp_path)},
    )
    return "stand_in"


@pytest.fixture
def actor() -> Iterator[AgentActor]:
    """An actor whose agent ends with the test."""
    made = AgentActor()
    yield made
    made.stop()
    made._stack.close()


def _read(actor: AgentActor) -> str:
    """What the agent says next."""
    found: list[bytes] = []

    def has_said() -> bool:
        data = actor.read(1.0)
        found.append(data or b"")
        return bool(data)

    assert wait_until(has_said, timeout_seconds=SOON)
    return b"".join(found).decode()


@pytest.mark.slow
def test_an_agent_has_a_session_of_its_own_and_ends_with_its_input(
    actor: AgentActor, module: str, tmp_path: Path
) -> None:
    actor.start([module], str(tmp_path), {})
    pid, directory, threads = _read(actor).split()
    assert directory == str(tmp_path)
    assert threads == "None"
    agent = psutil.Process(int(pid))
    assert os.getsid(int(pid)) != os.getsid(0)
    actor.write(b"hello\n")
    assert _read(actor) == "HELLO\n"
    assert actor.errors() == "what it says\n"
    assert actor.read(0.05) == b""
    actor.stop()
    assert wait_until(lambda: not _is_running(agent), timeout_seconds=SOON)
    assert actor.read(0.05) is None
    actor.write(b"nobody reads\n")


def _is_running(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_new_agent_ends_the_one_before_and_a_missing_directory_is_none(
    actor: AgentActor, module: str, tmp_path: Path
) -> None:
    actor.start([module], str(tmp_path / "not here"), {})
    pid, directory, _ = _read(actor).split()
    assert directory == str(actor._directory)
    first = psutil.Process(int(pid))
    actor.start([module], str(tmp_path), {})
    assert wait_until(lambda: not _is_running(first), timeout_seconds=SOON)
    assert _read(actor).split()[0] != pid


@pytest.mark.slow
def test_an_agent_that_has_ended_is_noticed(actor: AgentActor, module: str, tmp_path: Path) -> None:
    actor.start([module], str(tmp_path), {})
    psutil.Process(int(_read(actor).split()[0])).kill()
    assert wait_until(lambda: actor.read(1.0) is None, timeout_seconds=SOON)
    actor.write(b"x")
    actor.write(b"x")


def test_without_an_agent_there_is_nothing(actor: AgentActor) -> None:
    assert actor.read(0.01) is None
    actor.write(b"x")
    assert actor.errors() == ""


def test_a_node_says_where_it_is(actor: AgentActor, monkeypatch: pytest.MonkeyPatch) -> None:
    ray = types.ModuleType("ray")
    util = types.SimpleNamespace(get_node_ip_address=lambda: "10.0.0.5")
    monkeypatch.setattr(ray, "util", util, raising=False)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr("socket.gethostname", lambda: "n5")
    assert actor.node() == ("n5", "10.0.0.5")


@pytest.mark.slow
def test_an_agent_has_the_environment_that_ray_was_started_with() -> None:
    program = (
        "import os\n"
        "os.environ['CUDA_VISIBLE_DEVICES'] = ''\n"
        "from torchscale.features.cluster.engines.ray_actor import node_environment\n"
        "print(sorted(node_environment().items()))"
    )
    given = {
        "RAY_ADDRESS": "x",
        "OMP_NUM_THREADS": "1",
        "SPT_NOENV": "1",
        "PYTHONBREAKPOINT": "ray",
        "MINE": "a=b",
        "PYTHONPATH": ":".join(sys.path),
    }
    finished = subprocess.run(
        [sys.executable, "-c", program],
        env=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    kept = {"MINE": "a=b", "PYTHONPATH": given["PYTHONPATH"]}
    assert finished.stdout.strip() == str(sorted(kept.items()))


def test_where_the_system_does_not_tell_it_is_the_environment_of_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unreadable(_: Path) -> bytes:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_bytes", unreadable)
    monkeypatch.setenv("MINE", "1")
    monkeypatch.setenv("RAY_ADDRESS", "x")
    found = node_environment()
    assert found["MINE"] == "1"
    assert "RAY_ADDRESS" not in found
    assert "OMP_NUM_THREADS" not in found
