"""Runs of the real Ray Train, watched by a line in the train function and by a callback."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

PROGRAM = """
import json, os, sys, time
import ray, ray.train
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

how, storage = sys.argv[1], sys.argv[2]


def train_func(config):
    if config["how"] == "line":
        import torchscale

        torchscale.watch()
    import torch
    import torch.distributed as dist

    rank = dist.get_rank()
    layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3)))
    model = torch.nn.parallel.DistributedDataParallel(layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    mark = os.path.join(config["storage"], "killed")
    for number in range(150):
        if config["how"] == "callback" and rank == 1:
            time.sleep(0.03)
        if config["how"] == "line" and rank == 1 and number == 100 and not os.path.exists(mark):
            open(mark, "w").close()
            time.sleep(0.6)
            os.kill(os.getpid(), 9)
        model(torch.randn(32, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    print("output of rank", rank)


callbacks = []
if how == "callback":
    from torchscale.ray_train import WatchCallback

    callbacks = [WatchCallback(role="trainer")]
ray.init(address="local", num_cpus=3, include_dashboard=False)
TorchTrainer(
    train_func,
    train_loop_config={"how": how, "storage": storage},
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(
        name="tuesday",
        storage_path=storage,
        callbacks=callbacks,
        failure_config=FailureConfig(max_failures=1),
    ),
).fit()
ray.shutdown()
"""


def _run(how: str, storage: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("ray")
    pytest.importorskip("pyarrow")
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, how, str(storage)],
        env={name: value for name, value in os.environ.items() if name != "TORCHSCALE_WATCH"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def _followed(folder: Path) -> str:
    """The report, once the process that follows has ended."""
    (run,) = json.loads((folder / "runs.json").read_text())["runs"]
    try:
        process = psutil.Process(run["pid"])
        with contextlib.suppress(psutil.NoSuchProcess):
            process.wait(60)
    except psutil.NoSuchProcess:
        pass
    return (folder / "watch.json").read_text()


@pytest.mark.slow
def test_a_callback_has_an_unchanged_train_function_watched(tmp_path: Path) -> None:
    done = _run("callback", tmp_path)
    assert done.returncode == 0, done.stderr
    assert "output of rank 1" in done.stdout
    report = json.loads(_followed(tmp_path / "tuesday" / "watch" / "trainer"))

    assert (report["state"], report["role"], report["command"]) == ("done", "trainer", ["tuesday"])
    assert (report["world_size"], report["steps"]) == (2, 150)
    (first, *_) = report["findings"]
    assert (first["finding"]["kind"], first["finding"]["rank"]) == ("straggler", 1)
    assert first["lines"][0][0]["function"] == "train_func"


@pytest.mark.slow
def test_a_worker_that_is_killed_and_started_anew_is_told(tmp_path: Path) -> None:
    began = time.time()
    done = _run("line", tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(_followed(tmp_path / "tuesday" / "watch"))

    assert (report["state"], report["restarts"], report["runs"]) == ("done", 1, 1)
    killed, last = report["attempts"]
    assert killed["failure"]["summary"].startswith("rank 1 was gone")
    assert (killed["steps"], last["steps"], report["steps"]) == (100, 150, 250)
    assert report["seconds"] < time.time() - began
