"""The benchmark of the channel with many nodes, in small: it runs, and what it says is so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


@pytest.mark.slow
def test_stand_ins_join_send_their_files_and_end() -> None:
    command = [
        sys.executable,
        str(ROOT / "benchmarks/channel_scale.py"),
        "--nodes",
        "4",
        "--ranks",
        "2",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["nodes"], result["ranks"]) == (4, 2)
    assert result["collected_bytes"] == 3 * 2 * 120_000
