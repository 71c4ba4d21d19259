"""Keeps what fails in the collector from the program that it is a guest in.

Each entry from the program (an import, a hook, a fork, the exit) goes through :func:`guarded`, so
that nothing raised here reaches it. KeyboardInterrupt and SystemExit pass: a handler of the program
raised them, and they are meant for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_MOST_REASONS = 3
"""Of a process that are left: a hook that fails may do so at every step."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_folder = ""
_told = 0


def tell_in(folder: str) -> None:
    """Leave reasons in ``folder`` from now on."""
    global _folder  # noqa: PLW0603 - of the process, before anything else is there
    _folder = folder


def guarded(action: Callable[..., T], *arguments: object) -> T | None:
    """The result of ``action``; ``None`` where it fails, and why in the folder of the job."""
    try:
        return action(*arguments)
    except Exception as error:  # noqa: BLE001 - a program runs on whatever fails here
        tell(error)
        return None


def tell(error: Exception) -> None:
    """Leave the reason in ``problem-PID``, in the folder of the job; not in what is there already."""
    global _told  # noqa: PLW0603 - of the process
    if not _folder or _told >= _MOST_REASONS:
        return
    name = f"{_folder}/problem-{os.getpid()}" + f".{_told}" * bool(_told)
    _told += 1
    try:
        text = f"{type(error).__name__}: {error}\n".encode(errors="replace")
        descriptor = os.open(name, _NEW, 0o666)
        try:
            os.write(descriptor, text)
        finally:
            os.close(descriptor)
    except Exception:  # noqa: BLE001, S110 - nowhere is left to say so
        pass


def unseen(error: BaseException) -> None:
    """Take the caller's frame out of the traceback of an exception that passes through it: the one
    that the program prints is its own (from Python 3.11 on)."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next
