"""Logs of other programs: of bounded size while they are written and as they are kept, and without
secrets."""

from __future__ import annotations

import contextlib
import ctypes
import os
import stat
import sys
import time
from pathlib import Path
from typing import BinaryIO

from torchscale.errors import OutputError
from torchscale.util.files import atomic_write_bytes
from torchscale.util.redaction import redact_text, secret_values

KEPT_BYTES = 16 * 2**20
"""Bytes that are kept of a log: the first half of it and the last. An NCCL_DEBUG=INFO log of an
hour on eight ranks is smaller."""
_CHUNK_BYTES = 2**20
_END = b"\n"
_SEARCH_SECONDS = 1.0
"""Seconds between two looks for new logs. torchrun makes those of all ranks at once, when it starts
them."""
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate(2)
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def open_log(path: Path) -> BinaryIO:
    """A new log, for a program to write to.

    Raises:
        OutputError: it cannot be made.
    """
    try:
        return path.open("wb")
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}",
            hint="free space or choose another directory",
        ) from error


def keep_log(source: Path, target: Path, *, start: int = 0) -> int:
    """Make ``target`` the log that ``source`` holds from byte ``start`` on: at most
    :data:`KEPT_BYTES`, with a line that says how many bytes are left out, and without secrets. They
    may be one file.

    Returns:
        The size of ``source``: the ``start`` of what is printed later.

    Raises:
        OutputError: it cannot be read or written.
    """
    try:
        content, size = _bounded(source, start)
    except OSError as error:
        raise OutputError(f"cannot read {source}: {error.strerror or error}") from error
    secrets = secret_values()
    cleaned = b"".join(_clean(chunk, secrets) for chunk in _chunks(content))
    if source != target or len(content) != size or cleaned != content:
        atomic_write_bytes(target, cleaned)
    return size


def clean_logs(directory: Path) -> None:
    """:func:`keep_log` for every ``*.log`` in and below a directory, in place.

    Raises:
        OutputError: one cannot be written.
    """
    for path in sorted(directory.rglob("*.log")):
        if path.is_file() and not path.is_symlink():
            keep_log(path, path)


class LogLimit:
    """Bounds the space that logs take while programs are still printing to them: what
    :func:`keep_log` would leave out is given back to the file system at every call of
    :meth:`apply`.

    A file keeps its size and the writer its place; the middle becomes a hole. File systems that
    cannot make holes (NFS before 4.2) lose the end printed so far as well, and keep what is printed
    next.
    """

    def __init__(self, *patterns: str, directory: Path) -> None:
        """Bound the files in ``directory`` that these patterns match, now and later. What they hold
        now is left as it is."""
        self._directory, self._patterns = directory, patterns
        self._searched_at = float("-inf")
        self._freed: dict[Path, int] = {}
        self._search()
        for path in self._freed:
            with contextlib.suppress(OSError):
                self._freed[path] = path.stat().st_size
        self._starts = dict(self._freed)

    def apply(self) -> None:
        """Give back what is too much in each log; takes microseconds where nothing is."""
        if time.monotonic() - self._searched_at > _SEARCH_SECONDS:
            self._search()
        for path, freed in self._freed.items():
            with contextlib.suppress(OSError):  # it has gone, or may not be changed: then it grows
                self._freed[path] = _free(path, self._starts.get(path, 0), freed)

    def _search(self) -> None:
        self._searched_at = time.monotonic()
        for pattern in self._patterns:
            for path in self._directory.glob(pattern):
                self._freed.setdefault(path, 0)


def _free(path: Path, start: int, freed: int) -> int:
    """:func:`free_middle` of a log by its name, unless it is a link."""
    if path.lstat().st_size - max(freed, start) < KEPT_BYTES // 2:
        return freed
    with os.fdopen(os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK), "r+b") as file:
        return free_middle(file.fileno(), start, freed)


def free_middle(descriptor: int, start: int, freed: int) -> int:
    """Give what lies between the kept beginning, after byte ``start``, and the kept end of a log
    back to the file system; all before ``freed`` was given back earlier.

    Returns:
        The new ``freed``.

    Raises:
        OSError: it may not be changed.
    """
    status = os.fstat(descriptor)
    half = KEPT_BYTES // 2
    first, end = max(freed, start + half), status.st_size - half
    if end - first < _CHUNK_BYTES or not stat.S_ISREG(status.st_mode):
        return freed
    if _punch_hole(descriptor, first, end - first):
        return end
    os.ftruncate(descriptor, start + half)
    return status.st_size


def _punch_hole(descriptor: int, offset: int, length: int) -> bool:
    """Whether the file system could free these bytes of a file."""
    if _LIBC is None:
        return False
    offset_and_length = ctypes.c_int64(offset), ctypes.c_int64(length)
    return bool(_LIBC.fallocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, *offset_and_length) == 0)


def _bounded(path: Path, start: int) -> tuple[bytes, int]:
    """What is kept of a file from ``start`` on, and its size."""
    half = KEPT_BYTES // 2
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(start)
        if size - start <= KEPT_BYTES:
            return file.read(KEPT_BYTES), size
        head = file.read(half)
        file.seek(size - half)
        end = file.read(half).lstrip(b"\0")  # of a file that was cut while it grew
        note = f"\n[torchscale: {size - start - len(head) - len(end):,} bytes left out here]\n"
        return head + note.encode() + end, size


def _chunks(content: bytes) -> list[bytes]:
    """Pieces that end at line breaks, so that no secret is cut in two unless a line is longer than
    a piece."""
    pieces = []
    while len(content) > _CHUNK_BYTES:
        cut = content.rfind(_END, 0, _CHUNK_BYTES) + 1 or _CHUNK_BYTES
        pieces.append(content[:cut])
        content = content[cut:]
    return [*pieces, content]


def _clean(chunk: bytes, secrets: tuple[str, ...]) -> bytes:
    # Bytes that are no UTF-8 stay as they are.
    return redact_text(chunk.decode("utf-8", "surrogateescape"), secrets).encode(
        "utf-8", "surrogateescape"
    )
