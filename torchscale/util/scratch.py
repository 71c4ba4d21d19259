"""Temporary directories that the next start removes where this one was killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_PREFIX = "torchscale-"
_LOCK = ".in-use"
"""Locked by the process that made the directory for as long as it lives, also where another
container cannot see that process."""


@contextlib.contextmanager
def scratch_directory(purpose: str) -> Iterator[Path]:
    """A new directory ``torchscale-PURPOSE-…`` in the system's place for temporary files, removed
    at the end. What killed processes of this user left there is removed first.

    Raises:
        OSError: there is no place for it.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with tempfile.TemporaryDirectory(
        prefix=f"{_PREFIX}{purpose}-", ignore_cleanup_errors=True
    ) as name:
        unlocked = Path(name) / f"{_LOCK}.new"
        lock = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with contextlib.suppress(
                OSError
            ):  # a file system without locks: what is left there stays
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                unlocked.rename(Path(name) / _LOCK)  # nobody finds it before it is locked
            yield Path(name)
        finally:
            os.close(lock)


def _remove_abandoned(place: Path) -> None:
    """One without a lock's file was made this instant, or is not ours."""
    with contextlib.suppress(OSError):
        for entry in place.glob(f"{_PREFIX}*-*"):
            if not entry.is_symlink() and entry.is_dir() and entry.stat().st_uid == os.geteuid():
                _remove_if_abandoned(entry)


def _remove_if_abandoned(directory: Path) -> None:
    try:
        lock = os.open(directory / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(directory, ignore_errors=True)
    except OSError:
        return  # its process lives
    finally:
        os.close(lock)
