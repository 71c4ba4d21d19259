"""Goodput of real jobs: one that fails, is restarted by torchrun and goes on from its checkpoint,
and one that is started again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import os, sys, time
import torch
import torch.distributed as dist

last = int(sys.argv[1])
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.load("data.pt")
done = 0
if os.path.exists("last.pt"):
    done = torch.load("last.pt")["steps"]
while done < last:
    model(data).sum().backward()
    for value in model.parameters():
        dist.all_reduce(value.grad)
    optimizer.step()
    time.sleep(0.01)
    done += 1
    if done % 20 == 0 and rank == 0:
        time.sleep(0.1)
        torch.save({"steps": done, "model": model.state_dict()}, "part")
        os.replace("part", "last.pt")
    if done == 50 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and last == 60 and rank == 1:
        raise RuntimeError("as if a link had failed")
torch.save(model.state_dict(), f"model-{rank}.pt")
dist.destroy_process_group()
"""
BOUND_SECONDS = 150
STORE_OF_EACH_ATTEMPT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Or gloo may read the addresses of the attempt before from torchrun's store, and wait for them."""


def _watch(directory: Path, last: int, *options: str) -> tuple[str, dict[str, Any]]:
    command = ["-m", "torchscale", "watch", "-o", "job", "--append", *options, "--", sys.executable]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *command, *launcher, "--max-restarts", "1", "train.py", str(last)],
        cwd=directory,
        env={**os.environ, **STORE_OF_EACH_ATTEMPT, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_SECONDS,
    )
    assert done.returncode == 0, done.stderr
    return done.stderr, json.loads((directory / "job" / "watch.json").read_text())


def _total(report: dict[str, Any]) -> float:
    return float(sum(report["time"].values()))


def test_a_job_that_fails_and_is_started_again_counts_each_step_once(tmp_path: Path) -> None:
    import torch

    torch.save(torch.ones(8, 64), tmp_path / "data.pt")
    (tmp_path / "train.py").write_text(PROGRAM)
    text, first = _watch(tmp_path, 60, "--cost", "36")

    assert [attempt["steps"] for attempt in first["attempts"]] == [50, 20]
    assert [attempt["first_step"] for attempt in first["attempts"]] == [0, 40]
    assert first["repeated_steps"] == 10
    assert _total(first) == pytest.approx(first["seconds"], abs=1e-6)
    # Ten steps again, of which the first one is start-up; 49 + 10 others of 10 ms and more.
    assert first["time"]["recomputed"] > 9 * 0.01
    assert first["time"]["steps"] > 59 * 0.01
    assert first["time"]["restarts"] > 0
    assert first["cost"]["parts"]["start"] == pytest.approx(0.02 * first["time"]["start"])
    assert "recomputed steps (10)" in text
    assert "between attempts" in text
    assert "$" in text
    assert not list((tmp_path / "job").glob("ranks/*/*.bin"))

    text, second = _watch(tmp_path, 70)
    assert [attempt["first_step"] for attempt in second["attempts"]] == [0, 40, 60]
    assert second["repeated_steps"] == 10
    assert second["runs"] == 2
    assert second["time"]["idle"] > 0
    assert _total(second) == pytest.approx(second["seconds"], abs=1e-6)
    assert "goodput" in text
