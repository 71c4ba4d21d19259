"""A copy of an export that can be shared: what was measured, without the environment, the arguments
and the output that nsys records with it.

The copy is made of what is known to be harmless: tables of numbers, and the names that they refer
to. What a future version adds is left out until it is known.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import OutputError, TraceError
from torchscale.features.trace.readers.nsys.database import AGAIN, STRINGS, Database, Work, harden
from torchscale.features.trace.readers.nsys.export_file import open_database, read_only
from torchscale.util.redaction import redact_text

_NUMBERS = (
    re.compile(r"CUPTI_ACTIVITY_KIND_\w+"),
    re.compile(r"PROFILER_OVERHEAD"),
    re.compile(r"NVTX_EVENTS"),
    re.compile(r"NVTX_PAYLOAD_SCHEMAS"),
    re.compile(r"TARGET_INFO_SESSION_START_TIME"),
    re.compile(r"TARGET_INFO_CUDA_DEVICE"),
    re.compile(r"TARGET_INFO_GPU"),
    re.compile(r"PROCESSES"),
)
"""Tables that are copied, numbers alone but for the columns of :data:`_TEXTS`."""
_NAME_COLUMNS = ("shortName", "demangledName", "mangledName", "nameId", "textId")
"""Columns that refer to StringIds: names of kernels and of calls, and texts of NVTX ranges."""
_TEXTS = {
    ("NVTX_EVENTS", "text"): "{0}",
    ("NVTX_EVENTS", "binaryData"): "CASE WHEN {is_nccl} THEN {0} END",
    ("PROCESSES", "name"): "{0}",
    ("TARGET_INFO_GPU", "name"): "{0}",
    ("TARGET_INFO_GPU", "chipName"): "{0}",
}
"""Texts and bytes that are copied: of NVTX's payloads those of NCCL, which are numbers."""
_WHOLE = {
    "META_DATA_EXPORT": "name LIKE 'EXPORT_SCHEMA_VERSION%' OR name IN "
    "('EXPORT_PRODUCT_NAME', 'EXPORT_PRODUCT_VERSION', 'EXPORT_PARAM_TIME_NORMALIZE', "
    "'EXPORT_PARAM_LAZY')",
    "EXPORT_META_DATA": "name LIKE 'EXPORT_SCHEMA_VERSION%' OR name LIKE 'SCHEMA_VERSION%'",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "name IN ('NCCL communicator ID', 'Message size [bytes]', "
    "'Bytes', 'Peer rank', 'Root', 'Rank', 'No. of ranks', 'CUDA device')",
    "DIAGNOSTIC_EVENT": "text LIKE '%CUDA events collected%' OR text LIKE '%NVTX events "
    "collected%'",
}
"""Tables of texts, and which of their rows are copied."""
_NCCL = "t.text LIKE 'nccl%'"
_NCCL_BY_ID = (
    f"({_NCCL} OR t.text IS NULL AND t.textId IN (SELECT id FROM source.{STRINGS} WHERE value LIKE "
    "'nccl%'))"
)
_CODECS = {"UTF-8": "utf-8", "UTF-16le": "utf-16-le", "UTF-16be": "utf-16-be"}
_HINT = "free space or choose another file"
_PAGE_BYTES = 4096
_SPARE_PAGES = 256
"""A page or two for each table and its place in the schema."""
_FULL = "database or disk is full"
_OF_THE_DISK = (
    _FULL,
    "disk I/O error",
    "unable to open database file",
    "attempt to write a readonly database",
)
"""SQLite's words for what is no fault of the export."""


@dataclass(frozen=True)
class StrippedTable:
    """What of a table is in the copy: ``kept`` of ``rows``."""

    name: str
    rows: int
    kept: int


def strip_export(source: Path, target: Path) -> tuple[StrippedTable, ...]:
    """Write a copy of an export that can be shared. Returns its tables of which rows were left out,
    by name.

    Raises:
        TraceError: ``source`` is not a readable export of nsys, or ``target`` exists.
        OutputError: the copy cannot be written; nothing is left of it.
    """
    if not source.is_file():
        raise TraceError(f"{source}: no such file")
    if os.path.lexists(target):
        raise TraceError(f"{target} exists already", hint="name a file that does not")
    # An export that has changed meanwhile is found out before its copy gets its name.
    with _new_file(target) as temporary, open_database(source) as database:
        database.check_names()
        address = f"{temporary.resolve().as_uri()}?mode=rwc"
        with closing(sqlite3.connect(address, isolation_level=None, uri=True)) as copy:
            writer = _Copy(database, source, copy)
            try:
                return tuple(writer.write())
            except sqlite3.Error as error:
                cause = writer.cause(error, target.parent)
                if cause is None:
                    raise OutputError(f"cannot write {target}: {error}", hint=_HINT) from error
                raise TraceError(f"{source}: {cause}", hint=AGAIN) from error


@contextmanager
def _new_file(target: Path) -> Iterator[Path]:
    """A file in a directory that nobody else writes to, which becomes ``target`` once it is whole:
    SQLite takes what it finds beside a database for a part of it.

    Raises:
        OutputError: it cannot be written, or ``target`` has come to be meanwhile.
    """
    try:
        directory = Path(tempfile.mkdtemp(prefix=f".{target.name[:40]}.", dir=target.parent))
    except OSError as error:
        raise OutputError(f"cannot write {target}: {error.strerror}", hint=_HINT) from error
    try:
        temporary = directory / "copy"
        yield temporary
        try:
            _place(temporary, target)
        except OSError as error:
            raise OutputError(f"cannot write {target}: {error.strerror}", hint=_HINT) from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _place(temporary: Path, target: Path) -> None:
    """Give a file its name, which nothing has."""
    try:
        os.link(temporary, target)
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        temporary.rename(target)


class _Copy:
    """The new database, with the export attached as ``source``."""

    def __init__(self, database: Database, source: Path, copy: sqlite3.Connection) -> None:
        self._database, self._copy = database, copy
        self._source = source
        self._work = Work(copy, database.file_bytes)
        # The copy has the names and numbers of the export: it is not larger, whatever SQLite makes
        # of a damaged one.
        self._most_pages = 2 * database.file_bytes // _PAGE_BYTES + _SPARE_PAGES

    def cause(self, error: sqlite3.Error, directory: Path) -> str | None:
        """What is wrong with the export where it is the cause of an error; ``None`` where the disk
        that ``directory`` is on is."""
        if self._work.is_spent:
            return f"more rows than its {self._database.file_bytes:,} bytes can hold; it is damaged"
        most = self._most_pages * _PAGE_BYTES
        if str(error) == _FULL and shutil.disk_usage(directory).free > 2 * most:
            return f"a copy of it would have more than {most:,} bytes; it is damaged"
        if str(error).startswith(_OF_THE_DISK):
            return None
        return str(error)

    def _open(self) -> None:
        harden(self._copy)
        ((encoding,),) = self._database.rows("PRAGMA encoding")
        codec = _CODECS[str(encoding)]
        for name, function in (
            ("redacted", redact_text),
            ("file_name", lambda path: Path(path).name),
        ):
            self._copy.create_function(name, 1, _of_bytes(codec, function), deterministic=True)
        self._copy.execute(f"PRAGMA encoding = '{encoding}'")
        self._copy.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
        self._copy.execute(f"PRAGMA max_page_count = {self._most_pages}")
        self._copy.execute("ATTACH ? AS source", (read_only(self._source),))

    def write(self) -> Iterator[StrippedTable]:
        """Copy every table; what of it was left out."""
        self._open()
        self._copy.execute("BEGIN")
        for table in self._database.tables():
            rows = self._count(f'source."{table}"')
            kept = 0
            if table != STRINGS:
                kept = self._copy_table(table)
            if table != STRINGS and kept < rows:
                yield StrippedTable(table, rows, kept)
        rows, kept = self._count(f"source.{STRINGS}"), self._copy_strings()
        if kept < rows:
            yield StrippedTable(STRINGS, rows, kept)
        self._copy.execute("COMMIT")
        self._copy.execute("DETACH source")
        self._copy.execute("VACUUM")

    def _copy_table(self, table: str) -> int:
        """Copy what may be shared of a table; the number of rows."""
        columns = self._database.columns(table)
        if table.startswith("ENUM_") and columns:
            return self._insert(table, columns, [f't."{name}"' for name in columns], "1")
        if table in _WHOLE:
            return self._insert(table, columns, [f't."{name}"' for name in columns], _WHOLE[table])
        if not any(pattern.fullmatch(table) for pattern in _NUMBERS):
            return 0
        values = [self._value(table, name) for name in columns]
        return self._insert(table, columns, values, self._chosen(table))

    def _chosen(self, table: str) -> str:
        """Which rows of a table of numbers are copied: of all processes of the machine, those that
        were recorded."""
        if table != "PROCESSES":
            return "1"
        traced = [
            f"SELECT {column} >> 24 FROM source.{name} WHERE {column} IS NOT NULL"
            for name in self._database.tables()
            for column in ("globalPid", "globalTid")
            if name != "PROCESSES" and any(pattern.fullmatch(name) for pattern in _NUMBERS)
            and self._database.has(name, column)
        ]  # fmt: skip
        return f"t.globalPid >> 24 IN ({self._set('traced', traced)})"

    def _set(self, name: str, queries: Sequence[str]) -> str:
        """The numbers that any of the queries gives, as a query. A union has 500 parts at most."""
        self._copy.execute(f"CREATE TEMP TABLE {name} (number UNIQUE)")
        for query in queries:
            self._run(f"INSERT OR IGNORE INTO temp.{name} {query}")
        return f"SELECT number FROM temp.{name}"

    def _run(self, statement: str) -> sqlite3.Cursor:
        self._work.begin()
        return self._copy.execute(statement)

    def _value(self, table: str, column: str) -> str:
        if (table, column) in _TEXTS:
            is_nccl = _NCCL_BY_ID if self._database.has(table, "textId") else _NCCL
            value = _TEXTS[table, column].format(f"t.{column}", is_nccl=is_nccl)
            if column == "binaryData":
                return value
            # Bytes, since SQLite hands no text to a function that is not sound UTF-8.
            function = "file_name" if table == "PROCESSES" else "redacted"
            return f"CASE WHEN typeof({value}) = 'text' THEN {function}(CAST({value} AS BLOB)) END"
        return f"""CASE WHEN typeof(t."{column}") IN ('integer', 'real') THEN t."{column}" END"""

    def _insert(self, table: str, columns: Sequence[str], values: Sequence[str], where: str) -> int:
        quoted = ", ".join(f'"{name}"' for name in columns)  # some are words of SQL, as `end` is
        self._copy.execute(f'CREATE TABLE main."{table}" ({quoted})')
        cursor = self._run(
            f'INSERT INTO main."{table}" SELECT {", ".join(values)} FROM source."{table}" t '
            f"WHERE {where}"
        )
        return cursor.rowcount

    def _copy_strings(self) -> int:
        """Copy the texts that remaining rows refer to."""
        self._copy.execute(
            f"CREATE TABLE main.{STRINGS} (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)"
        )
        tables = [
            str(name)
            for (name,) in self._copy.execute(
                "SELECT name FROM main.sqlite_master WHERE type = 'table'"
            )
        ]
        used = [
            f'SELECT {column} FROM main."{table}" WHERE {column} IS NOT NULL'
            for table in tables
            for (_, column, *_) in self._copy.execute(
                f'PRAGMA main.table_info("{table}")'
            ).fetchall()
            if column in _NAME_COLUMNS
        ]
        chosen = (
            f"SELECT id, redacted(CAST(value AS BLOB)) FROM source.{STRINGS} WHERE typeof(value) = "
            f"'text' AND id IN ({self._set('used', used)})"
        )
        return self._run(f"INSERT INTO main.{STRINGS} {chosen}").rowcount

    def _count(self, table: str) -> int:
        # SQLite counts `*` by pages, in one step that nothing ends.
        ((count,),) = self._run(f"SELECT COALESCE(SUM(1), 0) FROM {table}").fetchall()
        return int(count)


def _of_bytes(codec: str, function: Callable[[str], str]) -> Callable[[object], str | None]:
    """An SQL function that applies ``function`` to a text that is given as its bytes."""

    def call(value: object) -> str | None:
        if isinstance(value, bytes):
            return function(value.decode(codec, "replace"))
        return None

    return call
