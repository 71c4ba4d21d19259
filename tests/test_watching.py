"""The line that has a program watched."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.util.test_ray_worker import fake_ray_train
from torchscale import watching
from torchscale.util.roles import VARIABLE

PROGRAM = """
import os, torchscale, time
print(torchscale.watch("job", timing=True))
print(os.environ["TORCH_NCCL_ENABLE_TIMING"])
import torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(60):
    model(torch.ones(4)).sum().backward()
    optimizer.step()
time.sleep(1)
"""


@pytest.mark.slow
def test_a_program_with_the_line_is_followed_to_its_end(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "TORCHSCALE_WATCH"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == [str(tmp_path / "job"), "1"]
    report = tmp_path / "job" / "watch.json"
    deadline = time.monotonic() + 60
    while not report.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert json.loads(report.read_text())["steps"] == 60


RAY_WORKER = """
import os, sys, threading, time
from types import ModuleType, SimpleNamespace

storage, rank, ending = sys.argv[1], int(sys.argv[2]), sys.argv[3]
os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE="2")
os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=sys.argv[4])
context = SimpleNamespace(
    get_experiment_name=lambda: "tuesday",
    get_world_rank=lambda: rank,
    get_local_rank=lambda: rank,
    get_storage=lambda: SimpleNamespace(
        experiment_fs_path=storage, storage_filesystem=SimpleNamespace(type_name="local")
    ),
)
sys.modules["ray.train"] = module = ModuleType("ray.train")
module.get_context = lambda: context
caught = []
runner = SimpleNamespace(get_error=lambda: caught[0] if caught else None)
execution = SimpleNamespace(execution_context=SimpleNamespace(training_thread_runner=runner))
inner = ModuleType("ray.train.v2._internal.execution.context")
inner.get_train_context = lambda: execution
sys.modules[inner.__name__] = inner


def train():
    import torch
    import torch.distributed as dist
    import torchscale

    dist.init_process_group("gloo")
    torchscale.watch()
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for number in range(60):
        if rank == 1 and number == 30 and ending == "killed":
            time.sleep(0.6)
            os.kill(os.getpid(), 9)
        if rank == 1 and number == 30 and ending == "raises":
            raise ValueError("bad record 17")
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()


def run():
    try:
        train()
    except BaseException as error:
        caught.append(error)


thread = threading.Thread(target=run)
thread.start()
thread.join()
sys.stdin.read()  # a worker of Ray goes on after its train function
os._exit(0)  # and is ended without any clean-up
"""
"""A worker of a run of Ray Train, without Ray."""


def _ray_workers(storage: Path, ending: str, port: int) -> list[subprocess.Popen[bytes]]:
    variables = {name: value for name, value in os.environ.items() if name != "TORCHSCALE_WATCH"}
    return [
        subprocess.Popen(
            [sys.executable, "-c", RAY_WORKER, str(storage), str(rank), ending, str(port)],
            stdin=subprocess.PIPE,
            env=variables,
        )
        for rank in range(2)
    ]


def _port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def _report(folder: Path, state: str) -> dict[str, Any]:
    """The report, once the job is in a state."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        if (folder / "watch.json").exists():
            report: dict[str, Any] = json.loads((folder / "watch.json").read_text())
            if report["state"] == state:
                return report
        time.sleep(0.1)
    raise AssertionError(f"never {state}: {list(folder.iterdir())}")


def _states(folder: Path) -> list[str]:
    return [
        json.loads(path.read_text())["state"] for path in sorted(folder.glob("ranks/*/rank.json"))
    ]


def _followers(folder: Path) -> list[int]:
    """PIDs of the processes that follow."""
    return [run["pid"] for run in json.loads((folder / "runs.json").read_text())["runs"]]


def _end_followers(folder: Path) -> None:
    for pid in _followers(folder):
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            process.kill()
            process.wait(30)


@pytest.mark.slow
def test_a_train_function_of_ray_is_over_before_its_process(tmp_path: Path) -> None:
    workers = _ray_workers(tmp_path, "ends", _port())
    folder = tmp_path / "watch"
    try:
        deadline = time.monotonic() + 90
        while _states(folder) != ["ended", "ended"] and time.monotonic() < deadline:
            time.sleep(0.1)
        assert _states(folder) == ["ended", "ended"]
        assert [worker.poll() for worker in workers] == [None, None]
    finally:
        for worker in workers:
            worker.communicate()
    report = _report(folder, "done")
    assert (report["steps"], report["command"], report["failure"]) == (60, ["tuesday"], None)
    (pid,) = _followers(folder)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(pid).wait(60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ending", "said"),
    [
        ("killed", ("rank 1 was gone: it left no exception", "ranks 0 and 1 were gone: they left")),
        ("raises", ("rank 1 raised ValueError: bad record 17 at <string>:",)),
    ],
)
def test_a_worker_that_fails_is_named_and_a_restart_is_an_attempt(
    tmp_path: Path, ending: str, said: tuple[str, ...]
) -> None:
    folder = tmp_path / "watch"
    try:
        workers = _ray_workers(tmp_path, ending, _port())
        if ending == "raises":
            deadline = time.monotonic() + 90
            while not list(folder.glob("ends/raised-*")) and time.monotonic() < deadline:
                time.sleep(0.1)
        else:
            workers[1].wait(90)
        for worker in reversed(workers):  # as Ray ends the other one
            worker.communicate()
        failed = _report(folder, "failed")
        again = _ray_workers(tmp_path, "ends", _port())
        deadline = time.monotonic() + 90
        while _states(folder)[1::2] != ["ended", "ended"] and time.monotonic() < deadline:
            time.sleep(0.1)
        for worker in again:
            worker.communicate()
        report = _report(folder, "done")
    finally:
        _end_followers(folder)

    assert failed["failure"]["summary"].startswith(said)
    assert (report["runs"], report["restarts"], report["steps"]) == (1, 1, 90)
    assert [attempt["number"] for attempt in report["attempts"]] == [0, 1]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """What is installed and started, which is not."""
    from torchscale.worker.watch import collector, ends, guard

    done: list[tuple[object, ...]] = []
    monkeypatch.delenv("TORCHSCALE_WATCH", raising=False)
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(guard, "tell_in", lambda _: None)
    monkeypatch.setattr(ends, "watch_end", lambda _: None)
    monkeypatch.setattr(
        collector, "install", lambda folder, *, in_ray: done.append(("install", folder, in_ray))
    )
    monkeypatch.setattr(
        "torchscale.util.detached.start_detached",
        lambda command: done.append(("start", *command[command.index("--follow") + 2 :])),
    )
    return done


@pytest.mark.slow
def test_a_worker_of_ray_collects_in_the_folder_of_its_run(
    installed: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_ray_train(monkeypatch, tmp_path)  # its rank is 2: the first one is elsewhere
    monkeypatch.chdir(tmp_path)
    folder = str(tmp_path / "watch")
    assert str(watching.watch()) == folder
    assert installed == [("install", folder, True)]
    assert watching.watch("a/b") == tmp_path / "a" / "b"
    elsewhere = tmp_path.with_name(f"{tmp_path.name}-2")
    assert watching.watch(elsewhere, role="trainer") == elsewhere / "trainer"
    assert installed[-1] == (
        *("start", "--role", "trainer", "--follow-name", "tuesday"),
        str(elsewhere / "trainer"),
    )


@pytest.mark.slow
def test_a_run_in_an_object_store_is_collected_at_home(
    installed: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    fake_ray_train(monkeypatch, "bucket/tuesday", kind="s3")
    with pytest.warns(UserWarning, match="stored at s3:bucket/tuesday, which is no folder"):
        folder = watching.watch()
    assert folder == tmp_path / "ray_results" / "tuesday" / "watch"
    assert [entry[0] for entry in installed] == ["install", "start"]


@pytest.mark.slow
def test_programs_with_roles_share_a_folder(
    installed: list[tuple[object, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv(VARIABLE, "rollout")
    assert watching.watch(tmp_path / "job") == tmp_path / "job" / "rollout"
    assert watching.watch(tmp_path / "job", role="trainer") == tmp_path / "job" / "trainer"
    assert (tmp_path / "job" / "roles.json").exists()


def test_under_the_command_it_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torchscale.watching import watch

    monkeypatch.setenv("TORCHSCALE_WATCH", str(tmp_path))

    assert watch() == tmp_path
