"""The file of an export: opened for reading alone, whole and unchanged."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchscale.errors import TraceError
from torchscale.features.trace.readers.nsys.database import AGAIN, Database, harden


def is_sqlite(beginning: bytes) -> bool:
    """Whether a file that starts like this is a SQLite database."""
    return beginning.startswith(b"SQLite format 3\0")


def read_only(path: Path) -> str:
    """The address of a database that SQLite opens without looking at what lies beside it, and
    without leaving anything there."""
    return f"{path.resolve().as_uri()}?mode=ro&immutable=1"


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """An export, opened for reading alone.

    Raises:
        TraceError: it is not a SQLite database, is damaged, is being written, or changes while it
            is read.
    """
    if not path.is_file():
        raise TraceError(f"{path}: not a regular file", hint="name an export of nsys")
    _check_is_complete(path)
    before = path.stat()
    try:
        connection = sqlite3.connect(read_only(path), uri=True)
    except sqlite3.Error as error:
        raise TraceError(f"{path}: {error}") from error
    try:
        harden(connection)
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        yield Database(connection, path, before.st_size)
    except TraceError as error:
        _check_is_unchanged(path, before, error)
        raise
    finally:
        connection.close()
    _check_is_unchanged(path, before)


def _check_is_complete(path: Path) -> None:
    """SQLite keeps a part of a database that is being written beside it."""
    whole = path.resolve()
    for end in ("-journal", "-wal"):
        companion = whole.with_name(whole.name + end)
        with contextlib.suppress(OSError):  # a link in a circle is no companion
            if companion.is_file() and companion.stat().st_size > 0:
                raise TraceError(
                    f"{path}: {companion.name} beside it holds a part of it; another program is "
                    "writing it, or was ended before it had finished",
                    hint=f"wait until it is written, or {AGAIN}",
                )


def _check_is_unchanged(
    path: Path, before: os.stat_result, cause: TraceError | None = None
) -> None:
    """A file that was removed can be read to its end."""
    with contextlib.suppress(OSError):
        now = path.stat()
        if (now.st_ino, now.st_size, now.st_mtime_ns) != (
            before.st_ino,
            before.st_size,
            before.st_mtime_ns,
        ):
            raise TraceError(
                f"{path}: it changed while it was read", hint="wait until it is written"
            ) from cause
