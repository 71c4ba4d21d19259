"""``torchscale watch`` on real ranks: programs that know nothing of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, steps = dist.get_rank(), int(sys.argv[1])
torch.set_num_threads(1)
model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)])
STRATEGY
optimizer = torch.optim.AdamW(model.parameters())
for step in range(steps):
    if rank == 1:
        EXTRA
    model(torch.ones(8, 64)).sum().backward()
    GRADIENTS
    optimizer.step()
    optimizer.zero_grad()
HANG
print("rank", rank, "is done")
dist.destroy_process_group()
"""
STRATEGIES = {
    "ddp": ("model = torch.nn.parallel.DistributedDataParallel(model)", ""),
    "fsdp": (
        "from torch.distributed.fsdp import fully_shard\n"
        "from torch.distributed.device_mesh import init_device_mesh\n"
        "mesh = init_device_mesh('cpu', (2,))\n"
        "for layer in model: fully_shard(layer, mesh=mesh)\n"
        "fully_shard(model, mesh=mesh)",
        "",
    ),
    "plain": ("", "for value in model.parameters(): dist.all_reduce(value.grad)"),
}
NVIDIAS = """
import json, pickle
import torch._C._distributed_c10d as c10d

empty = {"version": "2.10", "entries": []}
c10d._dump_nccl_trace = c10d._dump_fr_trace
c10d._dump_fr_trace = lambda *_, **__: pickle.dumps(empty)
c10d._dump_fr_trace_json = lambda *_, **__: json.dumps(empty)
"""
"""As on a GPU: two recorders, and the collectives are in the one whose name comes second."""
BOUND_SECONDS = 150


def _watch(
    directory: Path,
    strategy: str,
    *options: str,
    extra: float = 0.006,
    hang: str = "",
    recorders: str = "",
) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    wrap, gradients = STRATEGIES[strategy]
    program = PROGRAM.replace("STRATEGY", wrap).replace("GRADIENTS", gradients or "pass")
    program = program.replace("EXTRA", f"time.sleep({extra})" if extra else "pass").replace(
        "HANG", hang
    )
    (directory / "train.py").write_text(recorders + program)
    command = ["-m", "torchscale", "watch", "--output-dir", "job", *options, "--", sys.executable]
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [sys.executable, *command, *launcher, "train.py", "200"],
        cwd=directory,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_SECONDS,
    )
    return done, json.loads((directory / "job" / "watch.json").read_text())


def test_a_straggler_fails_the_command_where_that_is_asked_for(tmp_path: Path) -> None:
    """The same program without the cause passes, but where the machine makes a straggler of a rank;
    where others use its cores, no finding is sure. Of a job that is over other kinds can be
    asked."""
    for name, extra in (("slow", 0.006), ("sound", 0.0)):
        (tmp_path / name).mkdir()
        options = ("--json", "--fail-on", "straggler,hang")
        done, report = _watch(tmp_path / name, "ddp", *options, extra=extra)
        found = [item["finding"] for item in report["findings"]]
        sure = [one for one in found if one["confidence"] != "low"]
        is_slow = any(one["kind"] == "straggler" for one in sure)
        assert is_slow or name == "sound" or all(one["doubts"] for one in found)
        assert done.returncode == int(is_slow), done.stderr
        assert ("Failed by --fail-on: straggler: rank " in done.stderr) is is_slow
        assert report["exit_code"] == 0, "the program itself has not failed"
        assert json.loads(done.stdout[done.stdout.index("{") :])["steps"] == report["steps"]
    again = ("-m", "torchscale", "watch", "slow/job", "--fail-on", "input_pipeline")
    assert subprocess.run([sys.executable, *again], cwd=tmp_path, check=False).returncode == 0


HANGS = """
if rank == 0:
    dist.all_reduce(torch.ones(3))
else:
    time.sleep(15)
    dist.all_reduce(torch.ones(3))
"""
DIES = "sys.exit(5) if rank == 1 else time.sleep(1)"


def _assert_the_sleep_is_found(
    directory: Path, done: subprocess.CompletedProcess[str], report: dict[str, Any]
) -> None:
    """Of rank 1, with its line."""
    (found,) = [item for item in report["findings"] if item["finding"]["kind"] == "straggler"]
    assert found["finding"]["rank"] == 1
    assert 4 < found["finding"]["cost_seconds"] * 1e3 < 9
    lines = [line["line"] for line, _ in found["lines"]]
    program = (directory / "train.py").read_text().splitlines()
    assert program.index("        time.sleep(0.006)") + 1 in lines
    assert report["world_size"] == 2
    assert "rank 1 arrives" in done.stderr


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_a_rank_that_sleeps_is_named_with_its_line(tmp_path: Path, strategy: str) -> None:
    done, report = _watch(tmp_path, strategy)

    assert done.returncode == report["exit_code"] == 0, done.stderr
    assert done.stdout.count("is done") == 2
    assert report["steps"] == 200
    _assert_the_sleep_is_found(tmp_path, done, report)


@pytest.mark.parametrize(
    ("recorders", "end"), [("", DIES), (NVIDIAS, "")], ids=["gloo's, and a rank dies", "both"]
)
def test_a_job_that_hangs_is_explained_while_it_hangs(
    tmp_path: Path, recorders: str, end: str
) -> None:
    """Also where the collectives are in the recorder that comes second, of which they are read, and
    where a rank dies in the end; the exit code is then torchrun's."""
    done, report = _watch(tmp_path, "plain", "--stall", "4s", hang=HANGS + end, recorders=recorders)

    assert done.returncode == report["exit_code"] == (1 if end else 0), done.stderr
    assert "No progress for" in done.stderr
    assert report["autopsy"]["ranks"] == [1] or "rank 1" in report["autopsy"]["summary"]
    assert any("flight recorders read" in text for text in report["autopsy"]["evidence"])
    assert 150 < report["steps"] <= 200 if end else report["steps"] == 200
    _assert_the_sleep_is_found(tmp_path, done, report)
    if recorders:
        read = report["per_rank"][0]["recorders"]
        assert read["gloo"] == 0
        assert read["nccl"] > 200
