"""The SQLite file of a history: opened, checked and written; every error names it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from torchscale.errors import OutputError, StoreError, UsageError

_APPLICATION = 0x74736869
"""``tshi``, in the header of the file (PRAGMA application_id)."""
_VERSION = 1
"""Version of the tables (PRAGMA user_version)."""
_BUSY_SECONDS = 30.0
"""Another command may be adding a few hundred runs."""
_LIMIT_LENGTH = 0
"""SQLITE_LIMIT_LENGTH, which the module names from Python 3.11 on."""
_TABLES = {
    "run": "number INTEGER PRIMARY KEY, identity TEXT NOT NULL, name TEXT NOT NULL, measured_at "
    "TEXT NOT NULL, host TEXT NOT NULL, driver TEXT NOT NULL, torch TEXT NOT NULL, nccl TEXT NOT "
    "NULL, torchscale TEXT NOT NULL, git_branch TEXT NOT NULL, git_commit TEXT NOT NULL, "
    "config_hash TEXT NOT NULL, digest TEXT NOT NULL UNIQUE, facts TEXT NOT NULL, results BLOB NOT "
    "NULL",
    "cell": "number INTEGER PRIMARY KEY, content TEXT NOT NULL UNIQUE",
    "outcome": "run INTEGER NOT NULL REFERENCES run, cell INTEGER NOT NULL REFERENCES cell, state "
    "TEXT NOT NULL, reason TEXT NOT NULL, device TEXT NOT NULL, flags TEXT NOT NULL, conditions "
    "TEXT NOT NULL, measured_at TEXT NOT NULL, PRIMARY KEY (run, cell)",
    "figure": "run INTEGER NOT NULL REFERENCES run, cell INTEGER NOT NULL REFERENCES cell, metric "
    "TEXT NOT NULL, level REAL NOT NULL, low REAL, high REAL, log_variance REAL, launches INTEGER "
    "NOT NULL, PRIMARY KEY (run, cell, metric)",
    "folder": "fingerprint TEXT PRIMARY KEY, run INTEGER NOT NULL REFERENCES run",
}
MAX_RESULT_BYTES = 64 * 2**20
"""Largest result of one run, unpacked: as large as a baseline may be."""
Row = tuple[object, ...]


@contextmanager
def open_database(path: Path | None, *, create: bool = False) -> Iterator[HistoryDatabase]:
    """Open a history, and close it afterwards.

    Args:
        path: The file; ``None`` keeps a new one in memory.
        create: Whether it may be created and added to; else it is only read.

    Raises:
        UsageError: there is no such file.
        StoreError: it is no history, is damaged, or is of a newer torchscale.
        OutputError: it cannot be created.
    """
    name, address = "the history in memory", ":memory:"
    if path is not None:
        _check_file(path, create=create)
        mode = "ro"
        if create:
            mode = "rwc"
        name, address = str(path), f"file:{quote(str(path.resolve()))}?mode={mode}"
    try:
        connection = sqlite3.connect(
            address, timeout=_BUSY_SECONDS, isolation_level=None, uri=path is not None
        )
    except sqlite3.Error as error:
        raise OutputError(f"{name} cannot be opened: {error}") from error
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        if hasattr(connection, "setlimit"):
            connection.setlimit(_LIMIT_LENGTH, 2 * MAX_RESULT_BYTES)
        database = HistoryDatabase(connection, name)
        database.prepare(create=create or path is None)
        yield database
    finally:
        connection.close()


def _check_file(path: Path, *, create: bool) -> None:
    """Refuse a path that is no SQLite file and cannot become one."""
    if path.is_dir():
        raise UsageError(
            f"{path} is a directory; expected the file of a history", hint="--db torchscale.sqlite"
        )
    if path.exists() and not path.is_file():
        raise UsageError(
            f"{path} is not a regular file; expected the file of a history",
            hint="--db torchscale.sqlite",
        )
    try:
        with path.open("rb") as file:
            beginning = file.read(16)
    except FileNotFoundError as error:
        if not create:
            raise UsageError(
                f"no history {path}", hint=f"torchscale history results --db {path}"
            ) from error
        if not path.parent.is_dir():
            raise OutputError(
                f"cannot write {path}: {path.parent} is not a directory", hint="create it first"
            ) from error
        return
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}") from error
    if beginning and beginning != b"SQLite format 3\0":
        raise _foreign(str(path))


def _foreign(name: str) -> StoreError:
    return StoreError(
        f"{name} is not a history that torchscale wrote", hint="name another file with --db"
    )


class HistoryDatabase:
    """An open database with the tables of a history; :func:`open_database` opens it."""

    def __init__(self, connection: sqlite3.Connection, name: str) -> None:
        self._connection, self.name = connection, name

    def prepare(self, *, create: bool) -> None:
        """Check that it is a history, or make one of an empty file.

        Raises:
            StoreError: it is another file, damaged, or of a newer torchscale.
            OutputError: it cannot be written.
        """
        tables = {
            str(name)
            for (name,) in self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        if not tables and create:
            with self.transaction():
                self._create()
            return
        ((application,),) = self.rows("PRAGMA application_id")
        ((version,),) = self.rows("PRAGMA user_version")
        if application != _APPLICATION:
            raise _foreign(self.name)
        if version != _VERSION:
            raise StoreError(
                f"{self.name} has tables of version {version}; this torchscale reads version "
                f"{_VERSION}",
                hint="build it again from the run folders: torchscale history DIR --db NEW",
            )
        for table, definition in _TABLES.items():
            names = {str(row[1]) for row in self.rows(f"PRAGMA table_info({table})")}
            # Each column's definition begins with its name; a key of several columns stands in
            # brackets after them.
            expected = {
                part.split()[0] for part in definition.partition(", PRIMARY KEY (")[0].split(", ")
            }
            if table not in tables or not expected <= names:  # a view may never end
                raise self.damaged(f"the table {table} is not complete")
        self._check_length()
        ((result,),) = self.rows("PRAGMA quick_check(1)")
        if result != "ok":
            raise self.damaged(str(result).splitlines()[-1])

    def _check_length(self) -> None:
        """Refuse a file whose end is missing: SQLite misses it only when it needs it, and it may be
        a free page."""
        ((size,),) = self.rows("PRAGMA page_size")
        ((count,),) = self.rows("PRAGMA page_count")
        file = self.rows("PRAGMA database_list")[0][2]  # that of `main`; empty in memory
        expected = int(str(size)) * int(str(count))
        if file and Path(str(file)).stat().st_size < expected:
            raise self.damaged(f"it ends before its {expected:,} bytes")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is written, or nothing.

        Raises:
            OutputError: the file cannot be written.
        """
        self.execute("BEGIN IMMEDIATE")
        try:
            yield
            self.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise

    def execute(self, query: str, values: Sequence[object] = ()) -> None:
        """Run a statement that writes.

        Raises:
            OutputError: the file cannot be written.
        """
        try:
            self._connection.execute(query, tuple(values))
        except sqlite3.Error as error:
            raise OutputError(f"{self.name} cannot be written: {error}") from error

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """What a query gives.

        Raises:
            StoreError: the file is damaged, or being written.
        """
        try:
            return self._connection.execute(query, tuple(values)).fetchall()
        except (sqlite3.Error, OverflowError) as error:
            if "locked" in str(error):
                raise StoreError(
                    f"{self.name} is being written by another command", hint="try again later"
                ) from error
            raise self.damaged(str(error)) from error

    def _create(self) -> None:
        self.execute(f"PRAGMA application_id = {_APPLICATION}")
        self.execute(f"PRAGMA user_version = {_VERSION}")
        for table, definition in _TABLES.items():
            self.execute(f"CREATE TABLE {table} ({definition})")
            for change in ("UPDATE", "DELETE"):
                self.execute(
                    f"CREATE TRIGGER {table}_{change.lower()} BEFORE {change} ON {table} "
                    "BEGIN SELECT RAISE(ABORT, 'a history is append-only'); END"
                )
        self.execute("CREATE INDEX run_identity ON run (identity)")

    def damaged(self, what: str) -> StoreError:
        """The error that the file is damaged, to be raised."""
        return StoreError(
            f"{self.name} is damaged: {what}",
            hint="build it again from the run folders: torchscale history DIR --db NEW",
        )
