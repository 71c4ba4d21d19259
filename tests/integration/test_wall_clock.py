"""A watched job whose wall clock is set while it runs, as a node's is that gets the time late. Torch's
flight recorder goes by it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

_SOURCE = Path(__file__).with_name("wall_clock.c")
_YEARS = 13 * 365 * 24 * 3_600
STEPS = 300
PROGRAM = f"""
import time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
began = time.monotonic()
for _ in range({STEPS}):
    model(torch.ones(8)).sum().backward()
    for value in model.parameters():
        dist.all_reduce(value.grad)
    optimizer.step()
    time.sleep(0.01)
took = torch.tensor([time.monotonic() - began])
dist.destroy_process_group()
open("took", "w").write(str(took.item()))
"""
BOUND_SECONDS = 120


@pytest.fixture
def preloaded(tmp_path: Path) -> str:
    """Path of the library with the clock."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler is not None, "no C compiler: run scripts/system-packages.sh tests"
    library = tmp_path / "wall_clock.so"
    built = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", str(library)]
    subprocess.run([*built, str(_SOURCE), "-ldl"], check=True, timeout=BOUND_SECONDS)
    return str(library)


@pytest.mark.parametrize(
    ("before", "later"), [(_YEARS, 3_600), (3_600, -_YEARS), (-_YEARS, 2 * _YEARS)]
)
def test_no_duration_goes_by_it(tmp_path: Path, preloaded: str, before: int, later: int) -> None:
    """It is set before there are ranks, and once more while they train; never back to what it
    was."""
    (tmp_path / "train.py").write_text(PROGRAM)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    watch = [sys.executable, "-m", "torchscale", "watch", "--no-live", "-o", "job", "--"]
    began = time.monotonic()
    done = subprocess.run(
        [*watch, sys.executable, *launcher],
        cwd=tmp_path,
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "LD_PRELOAD": preloaded,
            "WALL_CLOCK_SET_AT": f"{began + 1.0} {began + 5.0}",
            "WALL_CLOCK_SET_BY": f"{before} {later}",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_SECONDS,
    )
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "job" / "watch.json").read_text())
    assert report["notes"] == []
    assert report["steps"] == STEPS
    assert report["seconds"] < seconds
    took = float((tmp_path / "took").read_text())
    assert report["step_seconds"] == pytest.approx(took / STEPS, rel=0.2)
    assert sum(map(abs, report["time"].values())) == pytest.approx(report["seconds"])
