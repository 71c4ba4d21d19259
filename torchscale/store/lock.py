"""The lock that keeps two commands from writing to one run folder."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from torchscale.errors import OutputError, StoreError
from torchscale.util.files import make_directory

_RETRY_SECONDS = 0.2
"""Seconds to wait after a failed attempt: :func:`is_locked` holds the lock for an instant, and must
not fail a command that starts."""


@contextmanager
def locked_folder(path: Path) -> Iterator[None]:
    """Make the folder if need be and hold it against a second sweep; the lock goes with the
    process, however it ends.

    Raises:
        StoreError: another process holds it.
        OutputError: it cannot be created or locked.
    """
    make_directory(path)
    try:
        lock = _open_lock(path / ".lock")
    except OSError as error:
        problem = "is a link; remove it" if error.errno == errno.ELOOP else error.strerror or error
        raise OutputError(f"cannot create {path / '.lock'}: {problem}") from error
    with lock:
        try:
            _lock_with_retry(lock)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise OutputError(f"cannot lock {path}: {error.strerror or error}") from error
            raise StoreError(
                f"another torchscale is writing to {path}",
                hint="wait for it, or use another --output-dir",
            ) from error
        yield


def is_locked(path: Path) -> bool:
    """Whether a command writes to the folder at this moment; ``False`` where that cannot be
    known."""
    try:
        # A pipe in its place would block until somebody writes to it.
        with os.fdopen(os.open(path / ".lock", os.O_RDONLY | os.O_NONBLOCK)) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _open_lock(path: Path) -> TextIO:
    """The lock's file, made if it is not there.

    Raises:
        OSError: it cannot be made, is a link, or is no regular file.
    """
    # For reading and writing, a pipe opens without a second end; a link could make a file
    # elsewhere.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file; remove it")
    return os.fdopen(descriptor, "r+")


def _lock_with_retry(lock: TextIO) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        time.sleep(_RETRY_SECONDS)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
