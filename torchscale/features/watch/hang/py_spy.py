"""Python stacks of processes that do not answer, from py-spy where it is installed and
permitted."""

from __future__ import annotations

import time
from collections.abc import Mapping

import msgspec

from torchscale.errors import MachineError
from torchscale.schema.launch.hang import StackFrame
from torchscale.util.interpreter import installed_program
from torchscale.util.processes.bounded import run_bounded

_ALL_SECONDS = 20.0
"""Seconds for all ranks of a machine: eight that can be read take one or two."""
_MAX_LINE = 10**9
_SECONDS = 10.0
"""py-spy reads a stack in well under a second; a process that hangs in the kernel may keep it."""


class _Frame(msgspec.Struct):
    name: str
    filename: str
    line: int = 0


class _Thread(msgspec.Struct):
    frames: list[_Frame]
    os_thread_id: int | None = None
    thread_name: str | None = None


def has_py_spy() -> bool:
    """Whether it is installed."""
    return installed_program("py-spy") is not None


def py_spy_stack(pid: int) -> tuple[StackFrame, ...]:
    """Stack of a process's main thread, outermost first; empty where py-spy is not installed or not
    permitted."""
    program = installed_program("py-spy")
    if program is None:
        return ()
    try:
        done = run_bounded([program, "dump", "--json", "--pid", str(pid)], timeout_seconds=_SECONDS)
    except MachineError:
        return ()
    return main_thread(done.stdout.encode(), pid)


def py_spy_stacks(pids: Mapping[int, int]) -> dict[int, tuple[StackFrame, ...]]:
    """The stacks of ranks (rank → pid), of as many as ``_ALL_SECONDS`` allow; those without one are
    left out."""
    deadline = time.monotonic() + _ALL_SECONDS
    stacks = {}
    for rank, pid in pids.items():
        if time.monotonic() >= deadline:
            break
        if stack := py_spy_stack(pid):
            stacks[rank] = stack
    return stacks


def main_thread(data: bytes, pid: int) -> tuple[StackFrame, ...]:
    """The main thread in what ``py-spy dump --json`` prints: its id in the kernel is the process's.
    Outermost frame first; empty where the text is not such."""
    try:
        threads = msgspec.json.decode(data, type=list[_Thread])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return ()
    for thread in threads:
        if thread.os_thread_id == pid or thread.thread_name == "MainThread":
            return tuple(
                StackFrame(
                    file=frame.filename,
                    line=max(0, min(frame.line, _MAX_LINE)),
                    function=frame.name,
                )
                for frame in reversed(thread.frames)
            )
    return ()
