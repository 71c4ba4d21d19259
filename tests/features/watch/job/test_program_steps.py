"""The mean step of a program that knows nothing of torchscale."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from torchscale.features.watch.job.program_steps import ProgramSteps
from torchscale.util.processes.subprocesses import wait_until

pytestmark = pytest.mark.slow

TRAIN = """
import sys, time, torch
weight = torch.nn.Parameter(torch.zeros(4))
optimizer = torch.optim.SGD([weight], lr=0.1)
for _ in range(int(sys.argv[1])):
    weight.sum().backward()
    time.sleep(0.01)
    optimizer.step()
"""


def started(steps: ProgramSteps, code: str, count: int) -> subprocess.Popen[bytes]:
    environment = steps.environment({**os.environ, "OMP_NUM_THREADS": "1"})
    return subprocess.Popen([sys.executable, "-c", code, str(count)], env=environment)


def test_enough_steps_are_measured_while_it_runs(tmp_path: Path) -> None:
    steps = ProgramSteps(["python", "train.py"], tmp_path / "seen", 1.0)
    program = started(steps, TRAIN, 100_000)
    try:
        assert wait_until(steps.is_measured, timeout_seconds=120)
    finally:
        program.kill()
        program.wait()
    seconds = steps.seconds()
    assert seconds is not None
    assert 0.01 < seconds < 1.0, "to import torch takes longer, also where nothing else runs"
    steps.close()
    assert not (tmp_path / "seen").exists()


@pytest.mark.parametrize(
    ("code", "count", "why"),
    [
        (TRAIN, 3, "before warm-up"),
        ("print()", 0, "no rank reported"),
        ("import torch; torch.nn.Linear(2, 2)", 0, ""),
    ],
)
def test_why_nothing_was_measured(tmp_path: Path, code: str, count: int, why: str) -> None:
    steps = ProgramSteps(["python", "train.py"], tmp_path / "seen", 1.0)
    assert started(steps, code, count).wait(timeout=120) == 0
    assert not steps.is_measured()
    assert steps.seconds() is None
    assert why in steps.shortfall
    assert steps.shortfall
