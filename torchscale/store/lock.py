"""The lock that keeps two commands from writing to one run folder."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchscale.errors import OutputError, StoreError


@contextmanager
def locked_folder(path: Path) -> Iterator[None]:
    """Make the folder if need be and hold it against a second sweep; the lock goes with the process, however it ends.

    Raises:
        StoreError: another process holds it.
        OutputError: it cannot be created or locked.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / ".lock").open("a")
    except OSError as error:
        raise OutputError(f"cannot create {path}: {error.strerror or error}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise OutputError(f"cannot lock {path}: {error.strerror or error}") from error
            raise StoreError(
                f"another torchscale is writing to {path}", hint="wait for it, or use another --output-dir"
            ) from error
        yield
