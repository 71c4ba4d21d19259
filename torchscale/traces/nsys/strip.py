"""A copy of an export that can be shared: what was measured, without the environment, the arguments
and the output that nsys records with it.

The copy is made of what is known to be harmless: tables of numbers, and the names that they refer
to. What a future version adds is left out until it is known.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from torchscale.errors import OutputError, TraceError
from torchscale.traces.nsys.database import Database, open_database
from torchscale.util.redaction import redact_text

_STRINGS = "StringIds"
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
    ("NVTX_EVENTS", "binaryData"): "CASE WHEN {text} LIKE 'nccl%' THEN {0} END",
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
_NVTX_TEXT = "COALESCE(t.text, (SELECT s.value FROM source.StringIds s WHERE s.id = t.textId))"


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
    if target.exists():
        raise TraceError(f"{target} exists already", hint="name a file that does not")
    with open_database(source) as database:
        if not database.has(_STRINGS, "id", "value"):
            raise TraceError(f"{source}: not an export of nsys (it has no StringIds)")
        try:
            address = f"{target.resolve().as_uri()}?mode=rwc"
            with closing(sqlite3.connect(address, isolation_level=None, uri=True)) as copy:
                return tuple(_Copy(database, source, copy).write())
        except BaseException as error:
            target.unlink(missing_ok=True)
            if isinstance(error, sqlite3.OperationalError):  # of the disk and its files
                raise OutputError(
                    f"cannot write {target}: {error}", hint="free space or choose another file"
                ) from error
            if isinstance(error, sqlite3.Error):
                raise TraceError(
                    f"{source}: {error}", hint="export it again from the .nsys-rep"
                ) from error
            raise


class _Copy:
    """The new database, with the export attached as ``source``."""

    def __init__(self, database: Database, source: Path, copy: sqlite3.Connection) -> None:
        self._database, self._copy = database, copy
        copy.execute("PRAGMA trusted_schema = OFF")
        copy.create_function("redacted", 1, _redacted, deterministic=True)
        copy.create_function("file_name", 1, _file_name, deterministic=True)
        copy.execute("ATTACH ? AS source", (f"{source.resolve().as_uri()}?mode=ro",))

    def write(self) -> Iterator[StrippedTable]:
        """Copy every table; what of it was left out."""
        self._copy.execute("BEGIN")
        for table in self._database.tables():
            rows = self._count(f'source."{table}"')
            kept = 0
            if table != _STRINGS:
                kept = self._copy_table(table)
            if table != _STRINGS and kept < rows:
                yield StrippedTable(table, rows, kept)
        rows, kept = self._count(f"source.{_STRINGS}"), self._copy_strings()
        if kept < rows:
            yield StrippedTable(_STRINGS, rows, kept)
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
            f"SELECT {column} / 16777216 FROM source.{name}"
            for name in self._database.tables()
            for column in ("globalPid", "globalTid")
            if name != "PROCESSES" and any(pattern.fullmatch(name) for pattern in _NUMBERS)
            and self._database.has(name, column)
        ]  # fmt: skip
        if traced:
            return f"t.globalPid / 16777216 IN ({' UNION '.join(traced)})"
        return "0"

    def _value(self, table: str, column: str) -> str:
        if (table, column) in _TEXTS:
            text = _NVTX_TEXT if self._database.has(table, "textId") else f"t.{column}"
            value = _TEXTS[table, column].format(f"t.{column}", text=text)
            if column == "binaryData":
                return value
            if table == "PROCESSES":
                return f"file_name({value})"
            return f"redacted({value})"
        return f"""CASE WHEN typeof(t."{column}") IN ('integer', 'real') THEN t."{column}" END"""

    def _insert(self, table: str, columns: Sequence[str], values: Sequence[str], where: str) -> int:
        quoted = ", ".join(f'"{name}"' for name in columns)  # some are words of SQL, as `end` is
        self._copy.execute(f'CREATE TABLE main."{table}" ({quoted})')
        cursor = self._copy.execute(
            f'INSERT INTO main."{table}" SELECT {", ".join(values)} FROM source."{table}" t '
            f"WHERE {where}"
        )
        return cursor.rowcount

    def _copy_strings(self) -> int:
        """Copy the texts that remaining rows refer to."""
        self._copy.execute(
            f"CREATE TABLE main.{_STRINGS} (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)"
        )
        tables = [
            str(name)
            for (name,) in self._copy.execute(
                "SELECT name FROM main.sqlite_master WHERE type = 'table'"
            )
        ]
        used = [
            f'SELECT {column} FROM main."{table}"'
            for table in tables
            for (_, column, *_) in self._copy.execute(
                f'PRAGMA main.table_info("{table}")'
            ).fetchall()
            if column in _NAME_COLUMNS
        ]
        if not used:
            return 0
        chosen = (
            f"SELECT id, redacted(value) FROM source.{_STRINGS} WHERE typeof(value) = 'text' "
            f"AND id IN ({' UNION '.join(used)})"
        )
        return self._copy.execute(f"INSERT INTO main.{_STRINGS} {chosen}").rowcount

    def _count(self, table: str) -> int:
        ((count,),) = self._copy.execute(f"SELECT COUNT(*) FROM {table}").fetchall()
        return int(count)


def _redacted(value: object) -> str | None:
    if isinstance(value, str):
        return redact_text(value)
    return None


def _file_name(value: object) -> str | None:
    if isinstance(value, str):
        return Path(value).name
    return None
