"""The last collective of a rank over gloo, in a file that outlives the rank."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from torchscale.worker.watch.last_call_form import FILE, FORM

pytestmark = pytest.mark.slow

PROGRAM = """
import os, sys
from pathlib import Path
import torch
import torch.distributed as dist
from torchscale.worker.watch.last_call import LastCall

dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
last = LastCall()
last.watch()
last.watch()
dist.all_reduce(torch.ones(8))
last.open(Path(sys.argv[1]))
CALLS
os.kill(os.getpid(), 9)
"""


def _run(tmp_path: Path, calls: str) -> tuple[int, int, int, str, str, str]:
    """Number, bytes, elements, name, type and group of what was noted last."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("CALLS", calls), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == -9, done.stderr
    _, number, size, elements, *texts = FORM.unpack((tmp_path / FILE).read_bytes())
    name, dtype, group = (text.rstrip(b"\0").decode() for text in texts)
    return number, size, elements, name, dtype, group


def test_the_last_call_outlives_a_rank_that_is_killed(tmp_path: Path) -> None:
    calls = "dist.broadcast(torch.ones(2), 0); dist.all_reduce(torch.ones(1, dtype=torch.float64))"
    assert _run(tmp_path, calls) == (3, 8, 1, "all_reduce", "torch.float64", "0")


def test_what_goes_in_is_counted_and_not_what_comes_out(tmp_path: Path) -> None:
    found = _run(tmp_path, "dist.all_gather([torch.ones(4)], torch.ones(4))")
    assert found[:4] == (2, 16, 4, "all_gather")


def test_a_barrier_has_no_tensor(tmp_path: Path) -> None:
    assert _run(tmp_path, "dist.barrier()")[:4] == (2, 0, 0, "barrier")


def test_before_the_file_is_there_nothing_is_noted(tmp_path: Path) -> None:
    assert _run(tmp_path, "")[0] == 0
