"""What a rank's threads did as a signal ended it: real processes that end by one."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from torchscale.features.watch.ends.files import EndFiles

pytestmark = pytest.mark.slow

BEGIN = """
import faulthandler, os, signal, sys
from torchscale.worker.watch import crash, ends
(lambda: os.makedirs(sys.argv[1] + "/ends", exist_ok=True))()
crash.watch_crash(sys.argv[1])
def work():
    os.kill(os.getpid(), signal.SIGSEGV)
"""


def _run(tmp_path: Path, program: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "train.py"
    script.write_text(BEGIN + program)
    return subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_a_fault_leaves_the_stack_and_ends_the_process_as_ever(tmp_path: Path) -> None:
    done = _run(tmp_path, "work()")

    assert (done.returncode, done.stderr) == (-signal.SIGSEGV, "")
    (end,) = EndFiles(tmp_path).of_attempt(0)
    assert end.kind == "crash"
    assert [frame[2] for frame in end.frames] == ["<module>", "work"]


def test_a_process_that_lives_has_left_nothing(tmp_path: Path) -> None:
    assert _run(tmp_path, "").returncode == 0
    assert EndFiles(tmp_path).of_attempt(0) == []


def test_for_the_program_nothing_is_enabled(tmp_path: Path) -> None:
    done = _run(
        tmp_path, "print(faulthandler.is_enabled(), faulthandler.disable(), flush=True)\nwork()"
    )

    assert done.stdout == "False False\n"
    assert len(EndFiles(tmp_path).of_attempt(0)) == 1  # ours stays


def test_a_program_that_has_its_stacks_written_gets_them(tmp_path: Path) -> None:
    program = "faulthandler.enable()\nprint(faulthandler.is_enabled(), flush=True)\nwork()"
    done = _run(tmp_path, program)

    assert done.stdout == "True\n"
    assert "Segmentation fault" in done.stderr
    assert EndFiles(tmp_path).of_attempt(0) == []


def test_a_program_that_had_them_written_before_keeps_them(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", BEGIN + "work()", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Segmentation fault" in done.stderr
    assert list((tmp_path / "ends").iterdir()) == []


def test_a_process_that_was_forked_does_not_write_into_the_file_of_the_rank(tmp_path: Path) -> None:
    program = """
pid = os.fork()
if not pid:
    crash.end_in_child()
    work()
os.waitpid(pid, 0)
"""
    assert _run(tmp_path, program).returncode == 0
    assert EndFiles(tmp_path).of_attempt(0) == []
