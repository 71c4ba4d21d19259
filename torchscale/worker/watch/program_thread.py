"""The thread in which the program trains: the main one, but in a worker of Ray, whose main thread
is Ray's, the one that runs the train function. It ends before its process does."""

from __future__ import annotations

import sys
import threading
from typing import Any


class _Program:
    """Of this process.

    Attributes:
        thread: ``None`` for the main one.
    """

    thread: threading.Thread | None = None


def adopt() -> None:
    """Have the calling thread be the program's."""
    current = threading.current_thread()
    _Program.thread = None if current is threading.main_thread() else current


def forget() -> None:
    """In a process that was forked: its only thread is its main one."""
    _Program.thread = None


def program_thread() -> threading.Thread:
    """The thread."""
    return _Program.thread or threading.main_thread()


def is_program_thread() -> bool:
    """Whether the caller runs in it."""
    return threading.current_thread() is program_thread()


def is_in_thread() -> bool:
    """Whether it is another one than the main one."""
    return _Program.thread is not None


def has_ended() -> bool:
    """Whether it was adopted, and is over."""
    return _Program.thread is not None and not _Program.thread.is_alive()


def raised() -> BaseException | None:
    """What a train function of Ray raised, which Ray keeps; ``None`` where nothing says so."""
    module: Any = sys.modules.get("ray.train.v2._internal.execution.context")
    if module is None:
        return None
    runner = module.get_train_context().execution_context.training_thread_runner
    error = runner.get_error()
    inner = getattr(error, "_base_exc", None)  # Ray wraps it, and its traceback with it
    for found in (inner, error):
        if isinstance(found, BaseException):
            return found
    return None
