"""Why a watched job fails or does not begin: real ranks, with causes injected."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.test_watch_goodput import STORE_OF_EACH_ATTEMPT
from torchscale.util.processes.bounded import Finished, run_bounded

pytestmark = [pytest.mark.slow, pytest.mark.real]

TRAIN = """
import os, sys, time
FIRST
import torch
import torch.distributed as dist
from datetime import timedelta
dist.init_process_group("gloo", timeout=timedelta(seconds=20))
torch.set_num_threads(1)
rank, world = dist.get_rank(), dist.get_world_size()
attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 10_000
    def __getitem__(self, number):
        WORKER
        return torch.ones(64)

def load(step):
    if step == 40 and rank == world - 1:
        CAUSE
    return torch.ones(8, 64)

def evaluate():
    dist.all_reduce(torch.zeros(1))

def epoch(steps):
    loader = iter(torch.utils.data.DataLoader(Samples(), batch_size=8, num_workers=WORKERS))
    for step in range(steps):
        batch = next(loader) if WORKERS else load(step)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        time.sleep(0.005)

epoch(STEPS)
evaluate()
dist.destroy_process_group()
"""
BOUND_SECONDS = 240


def _program(**parts: str) -> str:
    known = {"FIRST": "", "WORKERS": "0", "WORKER": "pass", "CAUSE": "pass", "STEPS": "80", **parts}
    text = TRAIN
    for name in sorted(known, key=len, reverse=True):  # WORKERS before WORKER
        text = text.replace(name, known[name])
    return text


def _watch(
    directory: Path, program: str, *options: str, ranks: int = 2
) -> tuple[Finished, dict[str, Any]]:
    (directory / "train.py").write_text(program)
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command = ["-m", "torchscale", "watch", "-o", "job", "--", sys.executable, *launcher]
    done = run_bounded(
        [sys.executable, *command, *options, "train.py"],
        cwd=directory,
        env={**os.environ, **STORE_OF_EACH_ATTEMPT, "OMP_NUM_THREADS": "1"},
        timeout_seconds=BOUND_SECONDS,
    )
    assert not done.timed_out, done.stderr
    return done, json.loads((directory / "job" / "watch.json").read_text())


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        (
            "raise RuntimeError('bad record, api_token=hunter2secret')",
            "rank 2 raised RuntimeError: bad record, api_token=<redacted> at train.py:23 (load)",
        ),
        ("os.kill(os.getpid(), 9)", "rank 2 was ended by SIGKILL"),
        (
            "import ctypes; ctypes.string_at(0)",
            "rank 2 was ended by SIGSEGV at train.py:23 (load)",
        ),
        ("sys.exit(4)", "rank 2 exited with code 4 and left no traceback"),
        ("torch.empty(1 << 60)", "can't allocate memory"),
    ],
    ids=["raises", "killed", "faults", "exits", "memory"],
)
def test_the_rank_that_ended_first_is_named(tmp_path: Path, cause: str, expected: str) -> None:
    done, report = _watch(tmp_path, _program(CAUSE=cause), ranks=3)

    assert done.returncode == 1
    failure = report["failure"]
    assert failure["rank"] == 2
    assert expected in failure["summary"]
    assert f"Failed after {report['steps']:,} steps (exit code 1): rank 2 " in done.stderr
    assert "hunter2secret" not in json.dumps(report)
    assert not (tmp_path / "job" / "ends").exists()
    shown = subprocess.run(
        [sys.executable, "-m", "torchscale", "watch", "job"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.startswith("Failed after")


def test_a_program_that_dies_at_import_has_failed(tmp_path: Path) -> None:
    done, report = _watch(tmp_path, _program(FIRST="import no_such_module"))

    # A rank that is slow to start may be ended by torchrun before it comes to that line.
    who = r"Failed before its first step \(exit code 1\): (ranks 0 and 1|rank [01]) raised "
    what = "ModuleNotFoundError: No module named 'no_such_module' at train.py:3"
    assert re.search(who + re.escape(what), done.stderr), done.stderr
    assert "imported no torch" not in done.stderr
    assert report["failure"]["cause"] == "exception"


def test_a_loader_worker_that_is_killed_is_told_with_its_rank(tmp_path: Path) -> None:
    worker = "number > 500 and os.environ['RANK'] == '1' and os.kill(os.getpid(), 9)"
    _, report = _watch(tmp_path, _program(WORKERS="1", WORKER=worker, STEPS="200"))

    failure = report["failure"]
    assert (failure["cause"], failure["rank"]) == ("loader_worker", 1), failure
    # torch sees the signal, or that the worker is gone, or has not seen either yet.
    ended = r"\(pid \d+\) of rank 1 (was killed by SIGKILL|exited unexpectedly)"
    assert re.search(rf"DataLoader worker ({ended}|of rank 1 was gone)", failure["summary"])


def test_collectives_that_do_not_fit_name_the_rank_that_left_its_loop(tmp_path: Path) -> None:
    steps = "60 if rank == 2 else 80"
    done, report = _watch(tmp_path, _program(STEPS=steps), ranks=3)

    failure = report["failure"]
    assert (failure["cause"], failure["rank"]) == ("collective_mismatch", 2)
    assert failure["summary"].startswith("rank 2 called all_reduce of 1 element (4.00 B float32)")
    assert "(evaluate), where rank" in failure["summary"]
    assert "called all_reduce of 16.2 KiB" in failure["summary"]
    assert failure["autopsy"]["ranks"] == [2]
    assert done.stderr.index("Failed after") < done.stderr.index("Where the wall time went")


@pytest.mark.parametrize(
    ("parts", "steps", "reason"),
    [
        ({"CAUSE": "attempt or os.kill(os.getpid(), 9)"}, 40, "rank 1 was ended by SIGKILL"),
        (
            {"FIRST": "os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and 1 / 0"},
            0,
            "ranks 0 and 1 raised ZeroDivisionError: division by zero at train.py:3",
        ),
    ],
    ids=["killed", "before it reported"],
)
def test_an_attempt_that_is_followed_by_another_has_its_reason(
    tmp_path: Path, parts: dict[str, str], steps: int, reason: str
) -> None:
    done, report = _watch(tmp_path, _program(**parts), "--max-restarts=2")

    first, *_, last = report["attempts"]
    assert first["steps"] == steps
    assert first["failure"]["summary"].startswith(reason)
    assert first["lost_seconds"] > 0
    assert "Attempts" in done.stderr
    assert done.returncode == 0, done.stderr
    assert report["failure"] is None
    assert last["steps"] == 80


def _free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


JOIN = """
import torch.distributed as dist
dist.init_process_group("gloo")
"""


def _does_not_begin(directory: Path, *command: str) -> str:
    """What watch says of a job that waits; it is interrupted then."""
    (directory / "join.py").write_text(JOIN)
    argv = [sys.executable, "-m", "torchscale", "watch", "--stall", "2s", "-o", "job", "--"]
    messages = directory / "messages"
    with messages.open("w") as file:
        watch = subprocess.Popen(
            [*argv, *command], cwd=directory, stderr=file, stdout=file, start_new_session=True
        )
        try:
            deadline = time.monotonic() + BOUND_SECONDS / 2
            while "cause:" not in messages.read_text() and time.monotonic() < deadline:
                time.sleep(0.2)
        finally:
            os.killpg(watch.pid, signal.SIGTERM)
            watch.wait(60)
    report = json.loads((directory / "job" / "watch.json").read_text())
    return str(report["autopsy"]["summary"])


def test_ranks_that_wait_for_one_that_was_not_started_say_so(tmp_path: Path) -> None:
    port = _free_port()
    ranks = "; ".join(f"RANK={rank} {sys.executable} join.py &" for rank in range(3))
    script = f"export WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT={port}; {ranks} wait"
    summary = _does_not_begin(tmp_path, "bash", "-c", script.replace("&;", "&"))

    assert summary == (
        f"ranks 0-2 wait in init_process_group at join.py:3 for rank 3 at 127.0.0.1:{port}, which "
        "has not joined: it was not started, or it cannot reach that address"
    )


@pytest.mark.parametrize("kind", ["c10d", "static"])
def test_a_torchrun_that_waits_for_another_node_says_so(tmp_path: Path, kind: str) -> None:
    port = _free_port()
    options = [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-backend=c10d"]
    waits = "a second node (1 of 2 joined)"
    if kind == "static":
        options = [f"--master-port={port}", "--master-addr=127.0.0.1", "--node-rank=0"]
        waits = "node 1 (this is node 0 of 2)"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", *options]
    summary = _does_not_begin(tmp_path, *launcher, "join.py")

    assert f"its rendezvous at 127.0.0.1:{port} waits for {waits}" in summary
