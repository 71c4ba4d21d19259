"""A history: the results of many runs in one SQLite file, to which rows are only added.

Rows are never changed: triggers refuse it. A run folder that went on after it was added is added
once more; the newest row of a run counts. The file has no companions (no write-ahead log), so that
it can be copied whenever nothing writes.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

from pydantic import TypeAdapter, ValidationError

from torchscale.errors import OutputError, StoreError, UsageError
from torchscale.features.compare.history.records import (
    HistoryCell,
    HistoryContent,
    HistoryEntry,
    HistoryFigure,
    HistoryOutcome,
    HistoryRun,
)
from torchscale.schema.cells.kinds import AnyCell
from torchscale.schema.run.result_set import ResultSet

_APPLICATION = 0x74736869
"""``tshi``, in the header of the file (PRAGMA application_id)."""
_VERSION = 1
"""Version of the tables (PRAGMA user_version)."""
_BUSY_SECONDS = 30.0
"""Another command may be adding a few hundred runs."""
_MAX_RESULT_BYTES = 64 * 2**20
"""Largest result of one run, unpacked: as large as a baseline may be."""
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
_NEWEST = "(SELECT max(number) FROM run GROUP BY identity)"
_RUN_COLUMNS = tuple(HistoryRun.model_fields)
_OUTCOME_COLUMNS = tuple(HistoryOutcome.model_fields)
_FIGURE_COLUMNS = tuple(HistoryFigure.model_fields)
_LISTS = ("flags", "conditions")
"""Columns that hold names with commas between them."""
_RUNS = TypeAdapter(tuple[HistoryRun, ...])
_OUTCOMES = TypeAdapter(tuple[HistoryOutcome, ...])
_FIGURES = TypeAdapter(tuple[HistoryFigure, ...])
_CELLS: TypeAdapter[dict[int, AnyCell]] = TypeAdapter(dict[int, AnyCell])
_FACTS = TypeAdapter(dict[str, str])
_Row = tuple[object, ...]
_T = TypeVar("_T")


@contextmanager
def open_history(path: Path | None, *, create: bool = False) -> Iterator[HistoryFile]:
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
            connection.setlimit(_LIMIT_LENGTH, 2 * _MAX_RESULT_BYTES)
        history = HistoryFile(connection, name)
        history.prepare(create=create or path is None)
        yield history
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


class HistoryFile:
    """An open history; :func:`open_history` opens it."""

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
            for (name,) in self._rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        if not tables and create:
            with self.transaction():
                self._create()
            return
        ((application,),) = self._rows("PRAGMA application_id")
        ((version,),) = self._rows("PRAGMA user_version")
        if application != _APPLICATION:
            raise _foreign(self.name)
        if version != _VERSION:
            raise StoreError(
                f"{self.name} has tables of version {version}; this torchscale reads version "
                f"{_VERSION}",
                hint="build it again from the run folders: torchscale history DIR --db NEW",
            )
        for table, definition in _TABLES.items():
            names = {str(row[1]) for row in self._rows(f"PRAGMA table_info({table})")}
            # Each column's definition begins with its name; a key of several columns stands in
            # brackets after them.
            expected = {
                part.split()[0] for part in definition.partition(", PRIMARY KEY (")[0].split(", ")
            }
            if table not in tables or not expected <= names:  # a view may never end
                raise self._damaged(f"the table {table} is not complete")
        self._check_length()
        ((result,),) = self._rows("PRAGMA quick_check(1)")
        if result != "ok":
            raise self._damaged(str(result).splitlines()[-1])

    def _check_length(self) -> None:
        """Refuse a file whose end is missing: SQLite misses it only when it needs it, and it may be
        a free page."""
        ((size,),) = self._rows("PRAGMA page_size")
        ((count,),) = self._rows("PRAGMA page_count")
        file = self._rows("PRAGMA database_list")[0][2]  # that of `main`; empty in memory
        expected = int(str(size)) * int(str(count))
        if file and Path(str(file)).stat().st_size < expected:
            raise self._damaged(f"it ends before its {expected:,} bytes")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Everything inside is written, or nothing.

        Raises:
            OutputError: the file cannot be written.
        """
        self._execute("BEGIN IMMEDIATE")
        try:
            yield
            self._execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise

    def has_folder(self, fingerprint: str) -> bool:
        """Whether a run folder with this fingerprint was added."""
        return bool(self._rows("SELECT 1 FROM folder WHERE fingerprint = ?", (fingerprint,)))

    def add(self, entry: HistoryEntry, fingerprint: str = "") -> bool:
        """Add a run, unless one with its digest is there (writes).

        Args:
            entry: The run.
            fingerprint: Fingerprint of the folder's files, by which it is known without being read.

        Returns:
            Whether it was new.

        Raises:
            OutputError: the file cannot be written.
            StoreError: it is damaged.
        """
        with self.transaction():
            known = self._rows("SELECT number FROM run WHERE digest = ?", (entry.digest,))
            if known:
                number = int(str(known[0][0]))
            else:
                number = self._insert_run(entry)
            if not known:
                for cell in entry.cells:
                    self._insert_cell(number, cell)
            if fingerprint:
                self._execute("INSERT OR IGNORE INTO folder VALUES (?, ?)", (fingerprint, number))
        return not known

    def content(self, metrics: Sequence[str] = ()) -> HistoryContent:
        """All runs, each as it was added last, and their figures.

        Args:
            metrics: Names of metrics (``throughput``); all by default.

        Raises:
            StoreError: the file is damaged.
        """
        runs = self._rows(
            f"SELECT {', '.join(_RUN_COLUMNS)} FROM run WHERE number IN {_NEWEST} ORDER BY "
            "measured_at, number"
        )
        outcomes = self._rows(
            f"SELECT {', '.join(_OUTCOME_COLUMNS)} FROM outcome WHERE run IN {_NEWEST}"
        )
        # A key is its metric (`throughput`) or begins with it (`busbw/all_reduce/fp32`).
        chosen = " OR ".join(["metric = ? OR metric GLOB ?"] * len(metrics)) or "1"
        figures = self._rows(
            f"SELECT {', '.join(_FIGURE_COLUMNS)} FROM figure WHERE run IN {_NEWEST} AND "
            f"({chosen})",
            [value for metric in metrics for value in (metric, f"{metric}/*")],
        )
        return HistoryContent.model_construct(
            runs=self._validated(_RUNS, _named(_RUN_COLUMNS, runs)),
            cells=self._cells({row[1] for row in outcomes}),
            outcomes=self._validated(_OUTCOMES, _named(_OUTCOME_COLUMNS, outcomes)),
            figures=self._validated(_FIGURES, _named(_FIGURE_COLUMNS, figures)),
        )

    def facts(self, run: int) -> dict[str, str]:
        """Machine, software and settings of a run, by name.

        Raises:
            StoreError: the file is damaged.
        """
        rows = self._rows("SELECT facts FROM run WHERE number = ?", (run,))
        return self._validated(
            _FACTS, self._json(rows[0][0] if rows else None, f"the facts of run {run}")
        )

    def results(self, run: int) -> ResultSet:
        """A run as a whole.

        Raises:
            StoreError: the file is damaged.
        """
        what = f"the results of run {run}"
        rows = self._rows("SELECT results FROM run WHERE number = ?", (run,))
        packed = None
        if rows:
            packed = rows[0][0]
        if not isinstance(packed, bytes):
            raise self._damaged(what)
        unpacker = zlib.decompressobj()
        try:
            content = unpacker.decompress(packed, _MAX_RESULT_BYTES)
            if not unpacker.eof:
                raise self._damaged(what)
            return ResultSet.model_validate_json(content)
        except (zlib.error, ValidationError) as error:
            raise self._damaged(what) from error

    def _create(self) -> None:
        self._execute(f"PRAGMA application_id = {_APPLICATION}")
        self._execute(f"PRAGMA user_version = {_VERSION}")
        for table, definition in _TABLES.items():
            self._execute(f"CREATE TABLE {table} ({definition})")
            for change in ("UPDATE", "DELETE"):
                self._execute(
                    f"CREATE TRIGGER {table}_{change.lower()} BEFORE {change} ON {table} "
                    "BEGIN SELECT RAISE(ABORT, 'a history is append-only'); END"
                )
        self._execute("CREATE INDEX run_identity ON run (identity)")

    def _insert_run(self, entry: HistoryEntry) -> int:
        columns = [name for name in _RUN_COLUMNS if name != "number"]
        packed = zlib.compress(entry.results.model_dump_json().encode())
        facts = json.dumps(entry.facts, sort_keys=True, ensure_ascii=False)
        values = [*(getattr(entry.run, name) for name in columns), entry.digest, facts, packed]
        self._insert("run", (*columns, "digest", "facts", "results"), values)
        return int(str(self._rows("SELECT last_insert_rowid()")[0][0]))

    def _insert_cell(self, run: int, cell: HistoryCell) -> None:
        content = cell.cell.model_dump_json()
        self._execute("INSERT OR IGNORE INTO cell (content) VALUES (?)", (content,))
        ((number,),) = self._rows("SELECT number FROM cell WHERE content = ?", (content,))
        of_cell = {**cell.outcome.model_dump(mode="json"), "run": run, "cell": number}
        of_cell |= {name: ",".join(of_cell[name]) for name in _LISTS}
        self._insert("outcome", _OUTCOME_COLUMNS, [of_cell[name] for name in _OUTCOME_COLUMNS])
        for figure in cell.figures:
            values = {**figure.model_dump(mode="json"), "run": run, "cell": number}
            self._insert("figure", _FIGURE_COLUMNS, [values[name] for name in _FIGURE_COLUMNS])

    def _insert(self, table: str, columns: Sequence[str], values: Sequence[object]) -> None:
        self._execute(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
            values,
        )

    def _cells(self, wanted: set[object]) -> dict[int, AnyCell]:
        contents = {
            number: self._json(content, f"cell {number}")
            for number, content in self._rows("SELECT number, content FROM cell")
            if number in wanted
        }
        return self._validated(_CELLS, contents)

    def _json(self, text: object, what: str) -> object:
        try:
            content: object = json.loads(str(text))
        except (ValueError, RecursionError) as error:
            raise self._damaged(what) from error
        return content

    def _execute(self, query: str, values: Sequence[object] = ()) -> None:
        try:
            self._connection.execute(query, tuple(values))
        except sqlite3.Error as error:
            raise OutputError(f"{self.name} cannot be written: {error}") from error

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[_Row]:
        try:
            return self._connection.execute(query, tuple(values)).fetchall()
        except (sqlite3.Error, OverflowError) as error:
            if "locked" in str(error):
                raise StoreError(
                    f"{self.name} is being written by another command", hint="try again later"
                ) from error
            raise self._damaged(str(error)) from error

    def _validated(self, adapter: TypeAdapter[_T], value: object) -> _T:
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors()[0]
            raise self._damaged(f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error

    def _damaged(self, what: str) -> StoreError:
        return StoreError(
            f"{self.name} is damaged: {what}",
            hint="build it again from the run folders: torchscale history DIR --db NEW",
        )


def _named(columns: Sequence[str], rows: Sequence[_Row]) -> list[dict[str, object]]:
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    for values in named:
        for name in _LISTS:
            if name in values:
                values[name] = tuple(filter(None, str(values[name]).split(",")))
    return named
