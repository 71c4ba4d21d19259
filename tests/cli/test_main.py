"""Errors become one line and an exit code, whatever the output leads to."""

from __future__ import annotations

import errno
import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import torchscale
from torchscale.cli import main

pytestmark = pytest.mark.real


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "{}"),
        ("compare", "{}", "{}"),
        ("runs", "{}"),
        ("history", "{}"),
        ("profile", "analyze", "{}"),
        ("profile", "strip", "{}", "--output", "copy"),
        ("init", "--output", "{}"),
        ("report", "--source", "{}"),
    ],
)
@pytest.mark.parametrize("name", ["n" * 300, "/".join(["n" * 200] * 30)])
def test_a_name_that_no_file_can_have_is_a_mistake_of_the_user(
    tmp_path: Path, arguments: tuple[str, ...], name: str
) -> None:
    done = torchscale(tmp_path, *(word.format(name) for word in arguments))
    assert done.returncode in (2, 3)
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments", [("docs", "names"), ("--version",), ("docs", "schema", "config"), ("docs", "cli")]
)
def test_output_that_cannot_be_written_is_an_error_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run_program(tmp_path, *arguments, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 3
    assert (
        done.stderr.decode().splitlines()[0]
        == "error: cannot write the output: No space left on device"
    )


@pytest.mark.slow
def test_messages_that_cannot_be_written_keep_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # they are then written at the end
    with Path("/dev/full").open("wb") as full:
        assert (
            run_program(
                tmp_path, "report", "nowhere", stdout=subprocess.PIPE, stderr=full
            ).returncode
            == 2
        )


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--help",), ("--version",), ("docs", "names")])
def test_a_process_of_its_own_writes_all_that_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    done = run_program(tmp_path, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    expected = torchscale(tmp_path, *arguments)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().replace("python -m torchscale", "torchscale") == expected.stdout


def test_a_command_runs_with_the_garbage_collector(tmp_path: Path) -> None:
    gc.disable()  # as while the program is imported
    try:
        assert torchscale(tmp_path, "docs", "names").returncode == 0
        assert gc.isenabled()
    finally:
        gc.enable()


def run_program(
    directory: Path, *arguments: str, **streams: Any
) -> subprocess.CompletedProcess[bytes]:
    """In a process of its own."""
    command = [sys.executable, "-m", "torchscale", *arguments]
    return subprocess.run(command, cwd=directory, timeout=60, check=False, **streams)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (MemoryError(), "MemoryError"),
        (ImportError("a.so: failed to map segment"), "a.so: failed to map segment"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "[Errno 12] Cannot allocate memory"),
    ],
)
def test_a_lack_of_memory_is_an_error_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, told: str
) -> None:
    """Also where a library wraps it in an error of its own."""

    def fails() -> None:
        raise RuntimeError("cannot load") from error

    monkeypatch.setattr(main, "app", fails)
    with pytest.raises(SystemExit) as left:
        main.main()
    assert left.value.code == 3
    assert capsys.readouterr().err.startswith("error: not enough memory: cannot load\n")
    assert str(main.no_memory(error)) == f"not enough memory: {told}"


def test_other_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr(main, "app", fails)
    with pytest.raises(RuntimeError, match="a defect"):
        main.main()


@pytest.mark.slow
@pytest.mark.parametrize("works_on", [False, True])
def test_the_end_of_the_program_loses_nothing(works_on: bool) -> None:
    """Modules are not taken apart, but what is to run at the end does, and threads end first."""
    program = f"""
import atexit, sys, threading, time
from torchscale import __main__ as program
from torchscale.cli import main

class Kept:
    def __del__(self):
        print("taken apart", flush=True)

kept = Kept()

def command():
    atexit.register(lambda: print("at exit"))
    if {works_on}:
        threading.Thread(target=lambda: (time.sleep(0.2), print("of the thread"))).start()
    print("printed", end=" ")
    sys.exit(1)

main.main = command
program.run()
"""
    done = subprocess.run(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    if works_on:
        assert done.stdout.splitlines()[:2] == ["printed of the thread", "at exit"]
    else:
        assert done.stdout == "printed at exit\n"
