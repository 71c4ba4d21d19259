from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

from torchscale.errors import MachineError
from torchscale.util.logs import KEPT_BYTES
from torchscale.util.processes import subprocesses as launch_process
from torchscale.util.processes.bounded import BoundedProcess, run_bounded
from torchscale.util.processes.description import rank_environment
from torchscale.util.processes.names import AGENT_NAME, rank_process_name
from torchscale.util.processes.subprocesses import (
    KILL_GRACE_SECONDS,
    TOKEN_VARIABLE,
    ManagedProcess,
    find_token_processes,
    left_processes,
    tail,
    wait_until,
)

pytestmark = pytest.mark.slow

STUBBORN = """
import os, signal, subprocess, sys, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)
if len(sys.argv) > 1:
    subprocess.Popen([sys.executable, __file__, *sys.argv[2:]], start_new_session=True)
print("ready", os.getpid(), flush=True)
time.sleep(120)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_what_another_thread_imports_while_a_process_starts_prints_nothing() -> None:
    """As scipy, with which it imports ``logging``: both have locks that they take before a fork and
    release after it."""
    program = """
import importlib, os, sys
from torchscale.util.processes.subprocesses import ManagedProcess
os.register_at_fork(before=lambda: importlib.import_module("concurrent.futures.thread"))
with open(os.devnull, "wb") as nothing:
    process = ManagedProcess(
        [sys.executable, "-c", ""], env=dict(os.environ), stdout=nothing, stderr=nothing
    )
    process.end()
"""
    done = run_bounded(python(program), timeout_seconds=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_output_and_exit_code() -> None:
    done = run_bounded(
        python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"),
        timeout_seconds=30,
    )
    assert (done.returncode, done.stdout, done.stderr, done.timed_out) == (
        3,
        "out\n",
        "err\n",
        False,
    )


def test_much_output_does_not_block() -> None:
    done = run_bounded(python("print('x' * 3_000_000)"), timeout_seconds=30)
    assert len(done.stdout) == 3_000_001


def test_a_signal_is_a_negative_exit_code() -> None:
    done = run_bounded(python("import os; os.kill(os.getpid(), 9)"), timeout_seconds=30)
    assert done.returncode == -signal.SIGKILL


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(MachineError, match="cannot start no-such-program"):
        run_bounded(["no-such-program"], timeout_seconds=5)


def stubborn_family(directory: Path, ready: int) -> ManagedProcess:
    """A process with a child and a grandchild, of which at least so many ignore TERM by now."""
    script, output = directory / "stubborn.py", directory / "out"
    script.write_text(STUBBORN)
    with output.open("wb") as out:
        process = ManagedProcess(
            [sys.executable, str(script), "1", "2"], env=os.environ, stdout=out, stderr=out
        )
    assert wait_until(lambda: output.read_text().count("ready") >= ready, timeout_seconds=30)
    return process


def test_a_whole_family_is_ended_sessions_of_their_own_and_deaf_to_term(tmp_path: Path) -> None:
    """torchrun puts ranks into sessions of their own; a child and a grandchild here ignore TERM as
    well."""
    process = stubborn_family(tmp_path, 2)
    family = [found.pid for found in find_token_processes(process.token)]
    assert len(family) >= 2
    assert process.end(grace_seconds=0.3) == ()
    assert not any(alive(pid) for pid in family)
    assert find_token_processes(process.token) == []


def test_orphans_are_found_by_their_token_after_the_root_has_gone(tmp_path: Path) -> None:
    script = tmp_path / "stubborn.py"
    script.write_text(STUBBORN)
    code = (
        f"import subprocess, sys; subprocess.Popen([sys.executable, {str(script)!r}], "
        "start_new_session=True)"
    )
    with (tmp_path / "out").open("wb") as out:
        process = ManagedProcess(python(code), env=os.environ, stdout=out, stderr=out)
    assert wait_until(
        lambda: process.poll() == 0 and "ready" in (tmp_path / "out").read_text(),
        timeout_seconds=30,
    )
    assert len(find_token_processes(process.token)) == 1
    assert process.end(grace_seconds=0.3) == ()
    assert find_token_processes(process.token) == []


def test_a_run_that_is_cancelled_ends_at_once_and_is_no_timeout() -> None:
    asked: list[None] = []

    def cancelled() -> bool:
        asked.append(None)
        return len(asked) > 1

    done = run_bounded(
        python("import time; time.sleep(60)"), timeout_seconds=50, cancelled=cancelled
    )
    assert (done.returncode, done.timed_out) == (-signal.SIGTERM, False)
    assert done.seconds < 40


def test_a_process_runs_while_its_caller_does_something_else(tmp_path: Path) -> None:
    code = f"from pathlib import Path; Path({str(tmp_path / 'there')!r}).touch(); print('done')"
    with BoundedProcess(python(code)) as process:
        assert wait_until((tmp_path / "there").exists, timeout_seconds=30)
        done = process.finish(timeout_seconds=30)
    assert (done.returncode, done.stdout, done.timed_out) == (0, "done\n", False)


def test_a_process_that_nobody_waits_for_ends_with_its_context() -> None:
    with BoundedProcess(python("import time; time.sleep(60)")) as process:
        pid = process._process.pid
        assert alive(pid)
    assert not alive(pid)
    assert not find_token_processes(process._process.token)


def test_what_comes_at_once_is_seen_at_once_and_a_long_wait_asks_rarely(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, pauses = 0.0, list[float]()

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        pauses.append(seconds)

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", sleep)
    assert wait_until(lambda: now >= 0.003, timeout_seconds=60)
    assert now == pytest.approx(0.003)
    assert not wait_until(lambda: False, timeout_seconds=60)
    assert now < 60.2
    assert max(pauses) == pytest.approx(0.05)
    assert len(pauses) < 1400


def test_a_timeout_ends_it_and_says_so() -> None:
    started = time.monotonic()
    done = run_bounded(
        python("import time; print('begun', flush=True); time.sleep(60)"), timeout_seconds=1.0
    )
    assert done.timed_out
    assert done.returncode == -signal.SIGTERM
    assert done.stdout == "begun\n"
    assert time.monotonic() - started < 20


def test_a_process_dies_with_the_launcher_however_that_ends() -> None:
    code = """
import os, sys, time
from torchscale.util.processes.subprocesses import ManagedProcess
null = open(os.devnull, "wb")
child = ManagedProcess([sys.executable, "-c", "import time; time.sleep(120)"], env=os.environ, stdout=null, stderr=null)
print(child.pid, flush=True)
time.sleep(120)
"""
    launcher = subprocess.Popen(python(code), stdout=subprocess.PIPE, text=True)
    assert launcher.stdout is not None
    child = int(launcher.stdout.readline())
    assert alive(child)
    launcher.kill()
    launcher.communicate()
    assert wait_until(lambda: not alive(child), timeout_seconds=10)


def test_a_stranger_with_another_token_is_left_alone() -> None:
    stranger = subprocess.Popen(
        python("import time; time.sleep(60)"), env={**os.environ, TOKEN_VARIABLE: "other"}
    )
    try:
        run_bounded(python("pass"), timeout_seconds=30)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_tail(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("0123456789")
    assert tail(tmp_path / "log", 4) == "6789"
    assert tail(tmp_path / "none") == ""


def test_the_end_of_a_family_of_three_generations_takes_no_longer_than_it_says(
    tmp_path: Path,
) -> None:
    process = stubborn_family(tmp_path, 3)
    started = time.monotonic()
    assert process.end(grace_seconds=0.0) == ()
    assert time.monotonic() - started < 2 * KILL_GRACE_SECONDS, "it waits once, not for each"
    assert process.poll() == -signal.SIGKILL


def test_a_stopped_process_is_ended_too(tmp_path: Path) -> None:
    """A stopped process does not see TERM until it goes on."""
    with (tmp_path / "out").open("wb") as out:
        process = ManagedProcess(
            python("import time; time.sleep(120)"), env=os.environ, stdout=out, stderr=out
        )
    os.kill(process.pid, signal.SIGSTOP)
    assert process.end(grace_seconds=0.3) == ()
    assert not alive(process.pid)


def test_a_grandchild_that_keeps_the_output_open_does_not_hold_it_up(tmp_path: Path) -> None:
    script = tmp_path / "stubborn.py"
    script.write_text(STUBBORN)
    code = (
        f"import subprocess, sys; subprocess.Popen([sys.executable, {str(script)!r}], "
        "start_new_session=True)"
    )
    others = set(psutil.Process().children())  # a browser that tests share
    started = time.monotonic()
    done = run_bounded(python(code), timeout_seconds=60)
    assert done.returncode == 0
    assert not done.timed_out
    assert time.monotonic() - started < 40
    assert set(psutil.Process().children()) <= others


DAEMON = """
import os

read, write = os.pipe()
if not os.fork():
    os.setsid()
    if not os.fork():
        os.execve("/bin/sleep", ["sleep", "60"], {})  # closes its end of the pipe
    os._exit(0)
os.close(write)
os.read(read, 1)
os.wait()
"""
PARENT = """
import subprocess, sys
from torchscale.util.processes.subprocesses import ManagedProcess, adopt_orphans, left_processes, wait_until

nowhere = open("/dev/null", "wb")
before = subprocess.Popen(["sleep", "60"], stdout=nowhere, start_new_session=False)
adopt_orphans()
process = ManagedProcess([sys.executable, "-c", sys.argv[1]], env={}, stdout=nowhere, stderr=nowhere)
wait_until(lambda: process.poll() is not None, timeout_seconds=30)
named = process.end()
own = subprocess.Popen(["sleep", "60"], stdout=nowhere, start_new_session=False)
print(*named, *(f"{pid} {command}" for pid, command in left_processes().items()), sep="|", flush=True)
for one in (before, own):
    one.kill()
    one.wait()
"""


def test_a_daemon_with_a_clean_environment_is_named() -> None:
    """It carries no token and has no parent of ours left; a process of the caller's own is not
    named."""
    done = subprocess.run(
        [sys.executable, "-c", PARENT, DAEMON],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    words = done.stdout.split()
    assert words[0] == "pid", done.stdout
    daemon = psutil.Process(int(words[1]))
    try:
        assert done.stdout.strip() == f"pid {daemon.pid} (sleep 60), a daemon|{daemon.pid} sleep 60"
    finally:
        daemon.kill()


def test_a_rank_that_is_a_fork_is_told_by_its_name() -> None:
    """Its environment is that of its agent."""
    name_itself = (
        "import sys; from torchscale.worker.launcher.rank_process import name_process; "
        "name_process(sys.argv[1]); print(flush=True); input()"
    )
    environments = {}
    for name in (rank_process_name(998, 999), "rank-and-file", AGENT_NAME):
        with subprocess.Popen(
            [sys.executable, "-c", name_itself, name],
            env={**os.environ, "RANK": "7"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            environments[name] = rank_environment(psutil.Process(process.pid))
            process.communicate(b"\n")
    fork, plain, agent = environments.values()
    assert "RANK" not in agent, "it is that of the job that started us"
    assert plain["RANK"] == "7"
    assert "WORLD_SIZE" not in plain
    named = {name: fork[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")}
    assert named == {
        "RANK": "998",
        "LOCAL_RANK": "998",
        "WORLD_SIZE": "999",
        "LOCAL_WORLD_SIZE": "999",
    }


def test_of_a_long_output_the_end_is_returned() -> None:
    code = (
        "import sys\nfor number in range(1000): sys.stdout.write('x' * 199_999 + "
        "chr(10))\nprint('the end')"
    )
    done = run_bounded(python(code), timeout_seconds=60)
    assert done.returncode == 0
    assert done.stdout.endswith("x\nthe end\n")
    assert len(done.stdout) <= KEPT_BYTES


def test_what_is_given_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a file without a name: nothing stays behind when we are killed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = f"import os, sys; print(len(sys.stdin.read()), os.listdir({str(tmp_path)!r}))"
    done = run_bounded(python(code), timeout_seconds=30, stdin="x" * 100_000)
    assert done.stdout == "100000 []\n"


def test_no_place_for_temporary_files_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/dev/null/none")
    with pytest.raises(MachineError, match="cannot write temporary files: Not a directory"):
        run_bounded(python("pass"), timeout_seconds=5, stdin="x")


def test_without_proc_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_process, "_PROC", tmp_path / "absent")
    with pytest.raises(MachineError, match="/proc is not mounted"):
        run_bounded(python("pass"), timeout_seconds=5)


def test_without_proc_nothing_is_known_to_be_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command says that /proc is not mounted, and then ends."""

    def absent(*_: object) -> None:
        raise psutil.NoSuchProcess(os.getpid())

    monkeypatch.setattr(launch_process, "_adopted", {})
    monkeypatch.setattr(psutil, "Process", absent)
    assert left_processes() == {}
