"""Files of a rank: appended whole or not at all, and bounded, also on a full disk."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

_SEGMENT_BYTES = 2 << 20
_UNWRITTEN_BYTES = _SEGMENT_BYTES // 48 * 48
"""Of each file, while its disk is full; whole rows of any of them."""
_MOST_ATTEMPTS = 10_000
"""Folders that are tried: each takes microseconds, on a network file system a millisecond."""
_SEGMENTS = 4
"""Of each file, the last ones: what has been read by the command is of no more use."""


class Segments:
    """Files ``name-1.bin``, ``name-2.bin`` …, of which the last are kept. What cannot be written is
    kept for the next time, the last of it.

    Attributes:
        has_lost: Whether some of it was dropped.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._number, self._size = 1, 0
        self._unwritten = b""
        self.has_lost = False

    def add(self, content: bytes) -> None:
        """What to write next."""
        content = self._unwritten + content
        self.has_lost |= len(content) > _UNWRITTEN_BYTES
        self._unwritten = content[-_UNWRITTEN_BYTES:]

    def write(self) -> None:
        """Write what there is, whole, or nothing.

        Raises:
            OSError: it cannot be written.
        """
        content = self._unwritten
        if not content:
            return
        if self._size > _SEGMENT_BYTES:
            self._number, self._size = self._number + 1, 0
            with contextlib.suppress(OSError):
                self._path(self._number - _SEGMENTS).unlink(missing_ok=True)
        append_whole(self._path(self._number), content)
        self._size += len(content)
        self._unwritten = b""

    def _path(self, number: int) -> Path:
        return self._folder / f"{self._name}-{number:06d}.bin"


def overwrite(path: Path, text: str) -> None:
    """Write over a file that has the room: a full disk takes that.

    Raises:
        OSError: it cannot be written.
    """
    content = text.encode()
    with _opened(path, os.O_RDWR) as file:
        file.write(content.ljust(os.fstat(file.fileno()).st_size))


def replace_whole(path: Path, text: str) -> None:
    """Write a file anew: all of it, or what was there stays.

    Raises:
        OSError: it cannot be written.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        with _opened(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as file:
            _write(file, text.encode(errors="replace"))
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def append_whole(path: Path, content: bytes) -> None:
    """Append all of it, or nothing.

    Raises:
        OSError: it cannot be written.
    """
    with _opened(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND) as file:
        written = os.fstat(file.fileno()).st_size
        try:
            _write(file, content)
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(written)
            raise


def _opened(path: Path, flags: int) -> BinaryIO:
    """A file of this rank: no link, which would lead to one of others, and nothing that blocks.

    Raises:
        OSError: it cannot be opened, or is something else.
    """
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{path}: not a regular file")
    return os.fdopen(descriptor, "r+b" if flags & os.O_RDWR else "wb", buffering=0)


def _write(file: BinaryIO, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


def claim(ranks: Path, rank: int, attempt: int) -> Path:
    """A new folder for this rank, of this attempt or a later one: all ranks of an attempt have the
    same number, also where some of an earlier one never wrote. The folder of the job is there: a
    process that has another root must not make it.

    Raises:
        OSError: it cannot be made.
    """
    ranks.mkdir(exist_ok=True)
    for _ in range(_MOST_ATTEMPTS):
        folder = ranks / f"{rank}.{attempt}"
        try:
            folder.mkdir()
        except FileExistsError:
            attempt += 1
        else:
            return folder
    raise OSError(errno.EEXIST, f"{ranks}: {_MOST_ATTEMPTS} folders of rank {rank} are in it")
