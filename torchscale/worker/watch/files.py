"""Files of a rank: appended whole or not at all, and bounded, also on a full disk."""

from __future__ import annotations

import contextlib
from pathlib import Path

_SEGMENT_BYTES = 2 << 20
_UNWRITTEN_BYTES = _SEGMENT_BYTES // 48 * 48
"""Of each file, while its disk is full; whole rows of any of them."""
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
    with path.open("r+b", buffering=0) as file:
        file.write(content.ljust(path.stat().st_size))


def append_whole(path: Path, content: bytes) -> None:
    """Append all of it, or nothing.

    Raises:
        OSError: it cannot be written.
    """
    with path.open("ab", buffering=0) as file:
        written = file.tell()
        try:
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(written)
            raise


def claim(ranks: Path, rank: int, attempt: int) -> Path:
    """A new folder for this rank, of this attempt or a later one: all ranks of an attempt have the
    same number, also where some of an earlier one never wrote."""
    ranks.mkdir(parents=True, exist_ok=True)
    while True:
        folder = ranks / f"{rank}.{attempt}"
        try:
            folder.mkdir()
        except FileExistsError:
            attempt += 1
        else:
            return folder
