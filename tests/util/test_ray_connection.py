"""Connections to a Ray cluster: what is told where there is none, and that nothing else changes."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchscale.errors import MachineError, TorchscaleError, UsageError
from torchscale.util import extras, ray_connection
from torchscale.util.ray_connection import connected, connection_error

TOKEN = "a" * 40
HOLD = """
import json, ray, sys
info = ray.init(address="local", num_cpus=1, include_dashboard=False, _temp_dir=sys.argv[1])
print(info.address_info["gcs_address"], flush=True)
from ray.experimental.internal_kv import _internal_kv_get as get, _internal_kv_put as put
for line in sys.stdin:
    known = json.loads(get(b"CLUSTER_METADATA", namespace=b"cluster"))
    known["python_version"] = line.strip()
    put(b"CLUSTER_METADATA", json.dumps(known).encode(), overwrite=True, namespace=b"cluster")
    print("written", flush=True)
"""
"""A cluster that lasts as long as this process; a line of input becomes its version of Python."""


@contextlib.contextmanager
def _cluster(**variables: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    place = tempfile.mkdtemp(prefix="ray-")  # sockets in a longer path cannot be made
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, place],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "RAY_AUTH_MODE": "disabled", **variables},
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip(), process
    finally:
        process.communicate(timeout=60)
        shutil.rmtree(place, ignore_errors=True)


def test_an_installation_without_ray_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "is_installed", lambda _: False)
    with pytest.raises(UsageError, match="needs ray") as raised, connected(None):
        pass
    assert raised.value.hint is not None
    assert "[ray]" in raised.value.hint


@pytest.mark.parametrize(
    ("address", "told", "kind", "said"),
    [
        ("x", "ValueError: Invalid address format: x", UsageError, "x is no address of a Ray"),
        (
            "a:1",
            "ConnectionError: Failed to connect to Ray cluster",
            MachineError,
            "this machine is no node of the Ray cluster at a:1",
        ),
        ("a:1", "InvalidAuthToken", MachineError, "a:1 does not accept this token"),
        (
            "auto",
            "ConnectionError: Could not find any running Ray instance. Please",
            MachineError,
            "no Ray cluster runs on this machine",
        ),
        (
            "a:1",
            "RuntimeError: Version mismatch: The cluster was started with:\n    Ray: 2.55.0\n"
            "    Python: 3.12.1\nThis process on node x was started with:\n    Ray: 2.60.0\n"
            "    Python: 3.11.7\n",
            MachineError,
            "a:1 has Ray 2.55.0 and Python 3.12.1, this process Ray 2.60.0 and Python 3.11.7",
        ),
        (
            "a:1",
            "RuntimeError: This node has an IP address of b, and Ray cannot find a local Raylet",
            MachineError,
            "this machine is no node of the Ray cluster at a:1",
        ),
        ("a:1", "", MachineError, "no connection to the Ray cluster at a:1: it does not answer"),
        ("auto", "OSError: x", MachineError, "the Ray cluster of this machine: OSError: x"),
    ],
)
def test_what_ray_says_becomes_a_line(
    address: str, told: str, kind: type[TorchscaleError], said: str
) -> None:
    error = connection_error(address, told)
    assert type(error) is kind
    assert said in error.message
    assert "\n" not in error.message
    assert error.hint


def test_where_nobody_listens_nothing_is_tried() -> None:
    pytest.importorskip("ray")
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with (
        pytest.raises(MachineError, match=rf"127\.0\.0\.1:{port}: nothing answers"),
        connected(f"127.0.0.1:{port}"),
    ):
        pass
    assert time.monotonic() - began < ray_connection._SECONDS / 2


@pytest.mark.slow
def test_a_cluster_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(ray_connection, "_SECONDS", 2.0)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(MachineError, match="no answer in 2 s"), connected(address):
            pass


@pytest.mark.slow
def test_a_token_is_passed_on_and_a_wrong_one_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    with _cluster(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=TOKEN) as (address, _):
        ask = "from torchscale.util.ray_connection import connected\n" + (
            "from torchscale.errors import MachineError\n"
            "try:\n"
            f"    with connected({address!r}) as ray:\n"
            "        print(ray.get(ray.remote(lambda: 'ran').remote()))\n"
            "except MachineError as error:\n"
            "    print(error.message)\n"
        )
        said = []
        for token in (TOKEN, "b" * 40):
            variables = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
            done = subprocess.run(
                [sys.executable, "-c", ask],
                env={**os.environ, **variables},
                capture_output=True,
                text=True,
                check=True,
                timeout=ray_connection._SECONDS,
            )
            said.append(done.stdout.strip())
    assert said == ["ran", f"the Ray cluster at {address} does not accept this token, or wants one"]


@pytest.mark.slow
def test_another_python_in_the_cluster_is_told() -> None:
    pytest.importorskip("ray")
    with _cluster() as (address, process):
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("3.9.99\n")
        process.stdin.flush()
        assert process.stdout.readline() == "written\n"
        with (
            pytest.raises(MachineError, match=r"Python 3\.9\.99, this process"),
            connected(address),
        ):
            pass


@pytest.mark.slow
def test_signals_of_this_process_stay_its_own(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    code = (
        "import signal\n"
        "from torchscale.util.ray_connection import connected\n"
        "def own(*_): pass\n"
        "signal.signal(signal.SIGTERM, own)\n"
        "with connected('local') as ray:\n"
        "    assert signal.getsignal(signal.SIGTERM) is own\n"
        "    with connected('of-no-use:1') as again:\n"
        "        assert again is ray\n"
        "    assert ray.is_initialized()\n"
        "assert signal.getsignal(signal.SIGTERM) is own\n"
        "assert not ray.is_initialized()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
