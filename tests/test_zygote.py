"""Forks of the zygote are to those who start and watch them what processes of their own are."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.zygote import Zygote

pytestmark = pytest.mark.slow

SECONDS = 60.0
PROGRAM = [sys.executable, "-m", "torchscale"]
LIVES = [*PROGRAM, "watch", "--no-live", "-o", "job", "--", "/bin/sleep", "60"]


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    found = Zygote()
    yield found
    found.end()


def wait_for_child(process: subprocess.Popen[Any]) -> psutil.Process:
    """What the program has started: it is at work then."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end and process.poll() is None:
        for child in psutil.Process(process.pid).children():
            if child.name() == "sleep":
                return child
        time.sleep(0.01)
    raise AssertionError(process.poll())


def end(process: psutil.Process) -> None:
    """What a killed program leaves running."""
    with suppress(psutil.NoSuchProcess):
        process.kill()


def is_fork(pid: int) -> bool:
    """Only a fork has torch in the program's first process."""
    return "libtorch" in Path(f"/proc/{pid}/maps").read_text()


def facts(directory: Path, *, forked: Zygote | None, **options: Any) -> dict[str, Any]:
    """What can be seen of the program while it runs, and how it ends by a signal."""
    directory.mkdir()
    environment = {**os.environ, "MARK": "a mark"}
    environment["PYTHONPATH"] = os.pathsep.join(
        filter(None, [os.environ.get("PYTHONPATH"), "/nowhere"])
    )
    with (
        forked.serving() if forked is not None else nullcontext(),
        (directory / "log").open("w") as log,
    ):
        process = subprocess.Popen(
            LIVES,
            cwd=directory,
            env=environment,
            stdout=log,
            stderr=log,
            stdin=subprocess.PIPE,
            **options,
        )
    child = wait_for_child(process)
    seen = psutil.Process(process.pid)
    found = {
        "command line": seen.cmdline(),
        "environment": seen.environ(),
        "directory": Path(seen.cwd()).relative_to(directory),
        "parent": seen.ppid(),
        "program": seen.exe(),
        "name": seen.name(),
        "session": os.getsid(process.pid) in (os.getsid(0), process.pid),
        "leads": os.getsid(process.pid) == process.pid,
        "group": os.getpgid(process.pid) in (os.getpgid(0), process.pid),
        "cores": seen.cpu_affinity(),
        "descriptors": sorted(
            int(entry.name)
            for entry in Path(f"/proc/{process.pid}/fd").iterdir()
            if int(entry.name) < 3
        ),
        "log": Path(f"/proc/{process.pid}/fd/1").samefile(directory / "log"),
        "limits": Path(f"/proc/{process.pid}/limits").read_text(),
        "child's environment": {**child.environ(), "PWD": ""},
        "is a fork": is_fork(process.pid),
    }
    process.kill()
    found["ended by"] = process.wait(SECONDS)
    end(child)
    assert process.stdin is not None
    process.stdin.close()
    return found


@pytest.mark.parametrize("options", [{}, {"start_new_session": True}], ids=["plain", "session"])
def test_a_fork_is_seen_as_a_process_of_its_own(
    tmp_path: Path, zygote: Zygote, options: dict[str, Any]
) -> None:
    with zygote.serving():  # its start is no child of the program's
        pass
    real = facts(tmp_path / "real", forked=None, **options)
    fork = facts(tmp_path / "fork", forked=zygote, **options)
    assert (real.pop("is a fork"), fork.pop("is a fork")) == (False, True)
    for one in (real, fork):
        for variables in (one["environment"], one["child's environment"]):
            for name in [name for name in variables if name.startswith("TORCHSCALE_")]:
                del variables[name]  # of this run
    assert fork == real


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [(["--version"], 0, "torchscale "), (["no-such-command"], 2, "no-such-command")],
)
def test_output_and_exit_code_come_back(
    zygote: Zygote, arguments: list[str], code: int, said: str
) -> None:
    with zygote.serving():
        done = subprocess.run(
            [*PROGRAM, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False
        )
    assert (done.returncode, said in done.stdout + done.stderr) == (code, True)


def test_ctrl_c_reaches_it_and_leaves_nothing(tmp_path: Path, zygote: Zygote) -> None:
    with zygote.serving():
        process = subprocess.Popen(
            LIVES, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    child = wait_for_child(process)
    assert is_fork(process.pid)
    child.terminate()
    process.communicate(timeout=SECONDS)
    assert process.returncode == 128 + signal.SIGTERM
    assert not child.is_running()


@pytest.mark.parametrize(
    ("name", "value"),
    [("PYTHONWARNINGS", "default"), ("LD_LIBRARY_PATH", "/nowhere"), ("LC_ALL", "C")],
)
def test_what_is_read_at_a_start_has_it_started(
    tmp_path: Path, zygote: Zygote, name: str, value: str
) -> None:
    environment = {**os.environ, name: value}
    with zygote.serving():
        process = subprocess.Popen(
            LIVES,
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    child = wait_for_child(process)
    assert not is_fork(process.pid)
    process.kill()
    process.wait(SECONDS)
    end(child)


def test_places_of_modules_that_take_effect_at_a_start_have_it_started(
    tmp_path: Path, zygote: Zygote
) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('at the start')")
    with zygote.serving():
        done = subprocess.run(
            [*PROGRAM, "--version"],
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
            },
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=True,
        )
    assert done.stdout.startswith("at the start\ntorchscale ")


def test_it_ends_with_its_tests() -> None:
    zygote = Zygote()
    with zygote.serving():
        pass
    assert zygote._process is not None
    process = psutil.Process(zygote._process.pid)
    zygote.end()
    assert not process.is_running()
    assert subprocess.Popen._execute_child.__module__ == "subprocess"  # type: ignore[attr-defined]
