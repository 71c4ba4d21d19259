"""The SQLite database of an export, only read."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchscale.errors import TraceError
from torchscale.util.files import odd_companion

_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LIMIT_LENGTH = 0
"""SQLITE_LIMIT_LENGTH, which the module names from Python 3.11 on."""
_MAX_VALUE_BYTES = 64 * 2**20
"""Of one value: the longest names of kernels have some ten thousand characters."""


def is_sqlite(beginning: bytes) -> bool:
    """Whether a file that starts like this is a SQLite database."""
    return beginning.startswith(b"SQLite format 3\0")


class Database:
    """A database that is only read, and only its true tables."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self.connection, self._path = connection, path
        self._columns: dict[str, set[str]] = {}
        # A virtual table is a program that makes rows up.
        # SQLite writes `CREATE TABLE ` before the name of every other, however it was spelled.
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE %'"
        for (table,) in self.rows(query):
            self._columns[str(table)] = set()

    def tables(self) -> tuple[str, ...]:
        """Its true tables whose names are words, as all of nsys's are; by name."""
        return tuple(sorted(name for name in self._columns if _WORD.fullmatch(name)))

    def columns(self, table: str) -> tuple[str, ...]:
        """Columns of a table whose names are words, in their order.

        Raises:
            TraceError: one is generated.
        """
        self.has(table)
        names = (str(row[1]) for row in self.rows(f'PRAGMA table_info("{table}")'))
        return tuple(name for name in names if _WORD.fullmatch(name))

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table is there, with these columns."""
        if table not in self._columns:
            return False
        if not self._columns[table]:
            # nsys writes no generated columns; a few bytes of one can stand for gigabytes.
            if any(row[6] not in (0, 1) for row in self.rows(f'PRAGMA table_xinfo("{table}")')):
                raise TraceError(
                    f"{self._path}: {table} has a generated column; not an export of nsys"
                )
            rows = self.rows(f'PRAGMA table_info("{table}")')
            self._columns[table] = {str(row[1]) for row in rows}
        return self._columns[table].issuperset(columns)

    def has_key(self, table: str, column: str) -> bool:
        """Whether a row is found by this column without a search through all of the table."""
        rows = self.rows(f'PRAGMA table_info("{table}")')
        return [name for _, name, _, _, _, place in rows if place] == [column]

    def rows(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[object, ...]]:
        """Rows as they are read.

        Raises:
            TraceError: the database is damaged, or a column is not there.
        """
        try:
            yield from self.connection.execute(query, tuple(values))
        except sqlite3.Error as error:
            raise TraceError(
                f"{self._path}: {error}", hint="export it again from the .nsys-rep"
            ) from error

    def integers(self, query: str, values: Sequence[object], width: int) -> NDArray[np.int64]:
        """Rows of integers as an array of ``width`` columns.

        Raises:
            TraceError: as :meth:`rows`, or a value is not an integer.
        """
        try:
            cursor = self.connection.execute(query, tuple(values))
            flat = np.fromiter(itertools.chain.from_iterable(cursor), dtype=np.int64)
        except sqlite3.Error as error:
            raise TraceError(
                f"{self._path}: {error}", hint="export it again from the .nsys-rep"
            ) from error
        except (TypeError, ValueError, OverflowError) as error:
            raise TraceError(
                f"{self._path}: a time or id that is not an integer ({error})"
            ) from error
        return flat.reshape(-1, width)

    def strings(self, numbers: Iterable[int]) -> dict[int, str]:
        """Text of these ids of StringIds; a stand-in for those that it lacks."""
        texts: dict[int, str] = {}
        for number in numbers:
            texts[int(number)] = f"(name {number} is not in the export)"
            for (value,) in self.rows("SELECT value FROM StringIds WHERE id = ?", (int(number),)):
                texts[int(number)] = str(value)
        return texts


@contextmanager
def open_database(path: Path) -> Iterator[Database]:
    """An export, opened for reading alone.

    Raises:
        TraceError: it is not a SQLite database, or is damaged.
    """
    if not path.is_file():
        raise TraceError(f"{path}: not a regular file", hint="name an export of nsys")
    companion = odd_companion(path)
    if companion is not None:
        raise TraceError(
            f"{path}: {companion.name} beside it is not a regular file", hint="remove it"
        )
    try:
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
    except sqlite3.Error as error:
        raise TraceError(f"{path}: {error}") from error
    try:
        # A view or trigger in a hostile file runs no function.
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        if hasattr(connection, "setlimit"):  # from Python 3.11
            connection.setlimit(_LIMIT_LENGTH, _MAX_VALUE_BYTES)
        yield Database(connection, path)
    finally:
        connection.close()
