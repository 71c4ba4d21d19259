"""The line that has a program watched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


def test_under_the_command_it_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from torchscale.watching import watch

    monkeypatch.setenv("TORCHSCALE_WATCH", str(tmp_path))

    assert watch() == tmp_path
