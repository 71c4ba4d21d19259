"""A launch in a copy of a rank's process: the process ends as its copy did, so that torchrun sees why."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign import cases

PROGRAM = """
import os, signal, sys
from torchscale.worker.rank_process import run_in_copy
run_in_copy(lambda: {act})
print("goes on", flush=True)
"""


def end_of(act: str) -> tuple[int, str]:
    """Exit status and output of a process whose copy does this."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(act=act)], capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout


@pytest.mark.parametrize("number", cases([signal.SIGKILL, signal.SIGSEGV], [signal.SIGABRT, signal.SIGTERM]))
def test_a_signal_that_ends_the_copy_ends_the_process(number: signal.Signals) -> None:
    """KILL is what the kernel sends where memory runs out."""
    assert end_of(f"os.kill(os.getpid(), {int(number)})") == (-number, "")


def test_an_exit_code_is_passed_on_and_after_success_the_process_goes_on() -> None:
    assert end_of("os._exit(3)") == (3, "")
    assert end_of("0") == (0, "goes on\n")


@pytest.mark.slow
def test_a_rank_whose_group_was_removed_leaves(tmp_path: Path) -> None:
    """Of a launcher that was killed: nobody bounds the wait for its next launch."""
    program = "import sys; from pathlib import Path; from torchscale.worker.rank_process import group_launches; "
    program += "print(list(group_launches(Path(sys.argv[1]))))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "gone")], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"


OPTIMIZERS = """
import sys
import torch
from torchscale.worker.rank import import_optimizer_parts
import_optimizer_parts()
before = set(sys.modules)
for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
    model = torch.nn.Linear(2, 2)
    optimizer = kind(model.parameters(), lr=0.1, fused=True)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
print(len(set(sys.modules) - before))
"""


@pytest.mark.slow
def test_copies_import_nothing_large_for_an_optimizer() -> None:
    """torch imports 800 modules when it makes the first one, which takes a second in every copy."""
    done = subprocess.run([sys.executable, "-c", OPTIMIZERS], capture_output=True, text=True, timeout=120, check=True)
    assert int(done.stdout) < 20
