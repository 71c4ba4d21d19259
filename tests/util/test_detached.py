"""Processes that outlive the one that starts them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STARTER = """
import sys, time
from pathlib import Path
from torchscale.util.detached import start_detached
start_detached(sys.argv[2:])
deadline = time.monotonic() + 30
while not Path(sys.argv[1]).exists() and time.monotonic() < deadline:
    time.sleep(0.02)
"""
"""A process of its own: one that adopts orphans, as others here do, would get its child back."""
STARTED = """
import os, sys
with open(sys.argv[1] + ".part", "w") as part:
    part.write(f"{os.getppid()} {os.getsid(0)}")
os.rename(sys.argv[1] + ".part", sys.argv[1])
"""


@pytest.mark.slow
def test_it_is_no_child_and_has_a_session_of_its_own(tmp_path: Path) -> None:
    left = str(tmp_path / "left")
    command = [sys.executable, "-c", STARTED, left]
    starter = subprocess.Popen([sys.executable, "-c", STARTER, left, *command])
    assert starter.wait(60) == 0
    parent, session = map(int, Path(left).read_text().split())
    assert parent != starter.pid
    assert session != os.getsid(0)
