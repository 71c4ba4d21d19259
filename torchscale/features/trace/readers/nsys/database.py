"""The SQLite database of an export, only read."""

from __future__ import annotations

import itertools
import operator
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchscale.errors import TraceError

STRINGS = "StringIds"
"""Texts by their ids."""
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_LIMIT_LENGTH = 0
"""SQLITE_LIMIT_LENGTH, which the module names from Python 3.11 on."""
_MAX_VALUE_BYTES = 64 * 2**20
"""Maximum size of one value: the longest names of kernels have some ten thousand characters, and
the output of a program is one value too."""
_MAX_TABLES = 1_000
"""nsys writes less than two hundred."""
_LEAST_ROW_BYTES = 6
"""Minimum size of a row on a page of SQLite: a pointer of two bytes and a cell of four."""
_STEPS_PER_BYTE = 20
"""Maximum number of steps of SQLite's machine, in one query. A row takes about 8 of them a column,
and a column at least a byte of the file."""
_LEAST_STEPS = 10_000_000
"""Half a second, for files of a few pages."""
_STEPS_BETWEEN = 100_000
"""Some milliseconds."""
_MAX_SHOWN = 60
"""Characters of a value in a message."""
AGAIN = "export it again from the .nsys-rep"
"""What to do about a damaged export."""


class Work:
    """Ends a query that takes longer than all that a file of its size can hold: pages that stand
    in several places of a table make up rows without end."""

    def __init__(self, connection: sqlite3.Connection, file_bytes: int) -> None:
        self._most = (_LEAST_STEPS + _STEPS_PER_BYTE * file_bytes) // _STEPS_BETWEEN
        self._left = self._most
        connection.set_progress_handler(self._count, _STEPS_BETWEEN)

    def begin(self) -> None:
        """Another query."""
        self._left = self._most

    @property
    def is_spent(self) -> bool:
        """Whether the query was ended."""
        return self._left < 0

    def _count(self) -> int:
        self._left -= 1
        return int(self.is_spent)


class Database:
    """A database that is only read, and only its true tables.

    Raises:
        TraceError: it has more tables than nsys writes, or is damaged.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, file_bytes: int) -> None:
        self.connection, self._path, self.file_bytes = connection, path, file_bytes
        self._work = Work(connection, file_bytes)
        self._columns: dict[str, set[str]] = {}
        # A virtual table is a program that makes rows up.
        # SQLite writes `CREATE TABLE ` before the name of every other, however it was spelled.
        query = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE TABLE %'"
        for (table,) in self.rows(query):
            self._columns[str(table)] = set()
        if len(self._columns) > _MAX_TABLES:
            raise TraceError(
                f"{path}: {len(self._columns):,} tables; an export of nsys has at most "
                f"{_MAX_TABLES:,}",
                hint=AGAIN,
            )

    def check_names(self) -> None:
        """Look at StringIds, which every export has.

        Raises:
            TraceError: it is not as nsys writes it.
        """
        if not self.has(STRINGS, "id", "value"):
            raise TraceError(
                f"{self._path}: a SQLite database, but not an export of nsys (it has no {STRINGS} "
                "with id and value)"
            )
        # Without, each id would be looked for in all of the table, or stand for several texts.
        rows = self.rows(f"PRAGMA table_info({STRINGS})")
        if [name for _, name, _, _, _, place in rows if place] != ["id"]:
            raise TraceError(
                f"{self._path}: id is not the key of its {STRINGS}, as nsys exports it", hint=AGAIN
            )

    def tables(self) -> tuple[str, ...]:
        """Names of the database's true tables that are words, as all of nsys's are; sorted."""
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

    def check_identifiers(self, table: str, *columns: str) -> None:
        """Look for values by which rows are chosen: a row with another one would be left out.

        Raises:
            TraceError: one is neither a whole number nor NULL.
        """
        for column in columns:
            if not self.has(table, column):
                continue
            query = (
                f"SELECT {column} FROM {table} WHERE typeof({column}) NOT IN ('integer', 'null') "
                "LIMIT 1"
            )
            for (value,) in self.rows(query):
                raise TraceError(
                    f"{self._path}: {repr(value)[:_MAX_SHOWN]} as {column} of {table}; expected a "
                    "whole number",
                    hint=AGAIN,
                )

    def rows(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[object, ...]]:
        """Rows as they are read.

        Raises:
            TraceError: the database is damaged, or a column is not there.
        """
        self._work.begin()
        most = self.file_bytes // _LEAST_ROW_BYTES
        try:
            for count, row in enumerate(self.connection.execute(query, tuple(values))):
                if count > most:
                    raise self._too_much()
                yield row
        except sqlite3.Error as error:
            raise self._as_trace_error(error) from error

    def integers(self, query: str, values: Sequence[object], width: int) -> NDArray[np.int64]:
        """Rows of integers as an array of ``width`` columns.

        Raises:
            TraceError: as :meth:`rows`, or a value is not an integer.
        """
        most = self.file_bytes // _LEAST_ROW_BYTES
        self._work.begin()
        try:
            cursor = itertools.islice(self.connection.execute(query, tuple(values)), most + 1)
            whole = map(operator.index, itertools.chain.from_iterable(cursor))
            flat = np.fromiter(whole, dtype=np.int64)
        except sqlite3.Error as error:
            raise self._as_trace_error(error) from error
        except TypeError as error:
            found = itertools.chain.from_iterable(self.rows(query, values))
            odd = (repr(value) for value in found if not isinstance(value, int))
            raise TraceError(
                f"{self._path}: {next(odd, '?')[:_MAX_SHOWN]} where a time or an id is to be, a "
                "whole number",
                hint=AGAIN,
            ) from error
        if len(flat) > most * width:
            raise self._too_much()
        return flat.reshape(-1, width)

    def strings(self, numbers: Iterable[int]) -> dict[int, str]:
        """Text of these ids of StringIds; a stand-in for those that it lacks."""
        texts: dict[int, str] = {}
        length = 0
        for number in numbers:
            texts[int(number)] = f"(name {number} is not in the export)"
            query = f"SELECT value FROM {STRINGS} WHERE id = ?"
            for (value,) in self.rows(query, (int(number),)):
                if isinstance(value, str):
                    if len(value) > _MAX_VALUE_BYTES:  # before Python 3.11 SQLite does not look
                        raise self._too_long()
                    texts[int(number)] = value
                    length += len(value)
            if length > self.file_bytes:
                raise self._too_much()
        return texts

    def _too_much(self) -> TraceError:
        return TraceError(
            f"{self._path}: more rows than its {self.file_bytes:,} bytes can hold; it is damaged",
            hint=AGAIN,
        )

    def _as_trace_error(self, error: sqlite3.Error) -> TraceError:
        if self._work.is_spent:
            return self._too_much()
        if isinstance(error, sqlite3.DataError):
            return self._too_long()
        return TraceError(f"{self._path}: {error}", hint=AGAIN)

    def _too_long(self) -> TraceError:
        return TraceError(
            f"{self._path}: a text or a value of more than {_MAX_VALUE_BYTES >> 20} MiB", hint=AGAIN
        )


def harden(connection: sqlite3.Connection) -> None:
    """Guard a connection to a database whose author is not known: its schema calls no function that
    acts, the cells of its pages are checked before they are read, and no value fills memory."""
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
    if hasattr(connection, "setlimit"):  # from Python 3.11
        connection.setlimit(_LIMIT_LENGTH, _MAX_VALUE_BYTES)
