"""Stacks from py-spy: replaced by a script, and the real one where it may read another process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torchscale.errors import MachineError
from torchscale.features.watch.hang import py_spy
from torchscale.features.watch.hang.py_spy import (
    has_py_spy,
    main_thread,
    py_spy_stack,
    py_spy_stacks,
)
from torchscale.schema.launch.hang import StackFrame

THREADS: list[dict[str, Any]] = [
    {
        "pid": 42,
        "thread_id": 1,
        "thread_name": "torchscale-autopsy",
        "os_thread_id": 43,
        "active": False,
        "owns_gil": False,
        "frames": [{"name": "wait", "filename": "/usr/lib/python3.11/threading.py", "line": 331}],
    },
    {
        "pid": 42,
        "thread_id": 2,
        "thread_name": None,
        "os_thread_id": 42,
        "active": True,
        "owns_gil": True,
        "frames": [
            {
                "name": "read",
                "filename": "/home/me/dataset.py",
                "short_filename": "dataset.py",
                "line": 88,
            },
            {"name": "main", "filename": "/home/me/train.py", "line": 12},
        ],
    },
]
MAIN = (
    StackFrame(file="/home/me/train.py", line=12, function="main"),
    StackFrame(file="/home/me/dataset.py", line=88, function="read"),
)


def install(directory: Path, script: str) -> None:
    program = directory / "py-spy"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_the_main_thread_is_the_one_with_the_id_of_the_process() -> None:
    assert main_thread(json.dumps(THREADS).encode(), 42) == MAIN


def test_the_main_thread_is_known_by_its_name_where_kernels_number_threads_otherwise() -> None:
    """As in a container, whose processes have other ids inside and outside."""
    named = [{**THREADS[0]}, {**THREADS[1], "thread_name": "MainThread"}]
    assert main_thread(json.dumps(named).encode(), 7) == MAIN
    assert main_thread(json.dumps(THREADS).encode(), 7) == ()


def test_lines_that_no_file_has_are_moved_into_the_range() -> None:
    frames = [{"name": "f", "filename": "a.py", "line": line} for line in (-1, 0, 10**12)]
    (main,) = [{**THREADS[1], "frames": frames}]
    found = main_thread(json.dumps([main]).encode(), 42)
    assert [frame.line for frame in found] == [10**9, 0, 0]


def test_a_frame_without_a_line_is_kept() -> None:
    """Of code that has none, as what C makes; the frames around it say where the rank is."""
    (thread,) = [{**THREADS[1], "frames": [{"name": "f", "filename": "a.py"}]}]
    (frame,) = main_thread(json.dumps([thread]).encode(), 42)
    assert (frame.function, frame.line) == ("f", 0)


@pytest.mark.parametrize("data", [b"", b"{}", b"Error: Permission denied", b"[{}]", b"[]"])
def test_other_output_gives_no_stack(data: bytes) -> None:
    assert main_thread(data, 42) == ()


def test_py_spy_on_the_path_is_asked_where_the_environment_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "environment" / "python"))
    (tmp_path / "threads.json").write_text(json.dumps(THREADS))
    install(tmp_path, f'[ "$*" = "dump --json --pid 42" ] && cat {tmp_path}/threads.json')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert has_py_spy()
    assert py_spy_stack(42) == MAIN
    assert py_spy_stacks({0: 41, 1: 42}) == {1: MAIN}
    monkeypatch.setattr(py_spy, "_ALL_SECONDS", 0.0)
    assert py_spy_stacks({1: 42}) == {}, "there is no time left"
    install(tmp_path, "echo not permitted >&2; exit 1")
    assert py_spy_stack(42) == ()


def test_a_py_spy_that_cannot_be_started_gives_no_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise MachineError("no place for temporary files")

    install(tmp_path, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(py_spy, "run_bounded", failing)
    assert py_spy_stack(42) == ()
    assert py_spy_stacks({0: 42}) == {}


def test_without_py_spy_there_is_no_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert not has_py_spy()
    assert py_spy_stack(1) == ()


@pytest.mark.slow
def test_the_real_one_reads_where_a_process_is() -> None:
    code = (
        "import sys\ndef reads_its_data():\n    sys.stdin.read()\nprint('ready', "
        "flush=True)\nreads_its_data()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        program = Path(sys.executable).with_name("py-spy")
        asked = subprocess.run(
            [program, "dump", "--pid", str(process.pid)],
            capture_output=True,
            text=True,
            check=False,
        )
        stack = py_spy_stack(process.pid)
        process.communicate("", timeout=30)
    if "ermission" in asked.stderr:
        pytest.skip(f"this machine lets no process read another: {asked.stderr.strip()[:200]}")
    assert [frame.function for frame in stack][-1] == "reads_its_data"
