"""Processes end with their parent, and what a C library printed before is kept: NCCL's log is such
text."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from torchscale.util.processes.subprocesses import wait_until

LINES = 60
LINE = (
    "node:1:2 [0] NCCL INFO AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE "
    "channel{Lo..Hi}={0..23}"
)
PRINTS = """
import ctypes, os
from torchscale.util.processes.exit import exit_at_once
libc = ctypes.CDLL(None)
for _ in range(%d):
    libc.printf(b"%%s\\n", %r)
%s
"""


def lines_before(leaving: str) -> int:
    """Lines that arrive of those printed by C's ``printf``, when the process then leaves by this
    statement."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    program = PRINTS % (LINES, LINE.encode(), leaving)
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env=environment,
    )
    return done.stdout.count("\n")


@pytest.mark.slow
def test_the_end_of_a_c_librarys_output_arrives() -> None:
    assert lines_before("os._exit(0)") < LINES
    assert lines_before("exit_at_once(0)") == LINES


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parent", "expected"), [("os.getppid()", (0, "goes on\n")), ("os.getppid() + 1", (1, ""))]
)
def test_a_process_whose_parent_is_gone_already_leaves(
    parent: str, expected: tuple[int, str]
) -> None:
    """A parent that is killed between a fork and the request to the kernel would never be
    noticed."""
    program = (
        "import os; from torchscale.util.processes.exit import end_with_parent; "
        f"end_with_parent({parent})"
    )
    program += "; print('goes on')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == expected


@pytest.mark.slow
def test_a_process_ends_when_its_parent_is_killed() -> None:
    child = (
        "import os, time; from torchscale.util.processes.exit import end_with_parent; "
        "end_with_parent(os.getppid())"
    )
    child += "; print(os.getpid(), flush=True); time.sleep(600)"
    parent = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    with subprocess.Popen(
        [sys.executable, "-c", parent, child], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        process.kill()
    assert wait_until(lambda: not is_running(pid), timeout_seconds=20)


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
