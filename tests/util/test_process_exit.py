"""What a C library printed before the process left: NCCL's log is such text."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

LINES = 60
LINE = "node:1:2 [0] NCCL INFO AllReduce: 1073741824 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}"
PRINTS = """
import ctypes, os
from torchscale.util.process_exit import exit_at_once
libc = ctypes.CDLL(None)
for _ in range(%d):
    libc.printf(b"%%s\\n", %r)
%s
"""


def lines_before(leaving: str) -> int:
    """Lines that arrive of those printed by C's ``printf``, when the process then leaves by this statement."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    program = PRINTS % (LINES, LINE.encode(), leaving)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, env=environment
    )
    return done.stdout.count("\n")


@pytest.mark.slow
def test_the_end_of_a_c_librarys_output_arrives() -> None:
    assert lines_before("os._exit(0)") < LINES
    assert lines_before("exit_at_once(0)") == LINES
