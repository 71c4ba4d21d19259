"""Recordings of all kinds: an analysis whose figures can be, or a message."""

from __future__ import annotations

import contextlib
import json
import math
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.campaign import WHOLE
from tests.features.trace.readers.builders import kineto
from tests.features.trace.readers.test_soundness import export, trace_events
from torchscale.errors import TraceError
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.features.trace.readers.recordings import read_recordings

EXAMPLES = settings(max_examples=3000 if WHOLE else 60)
CORPUS = sorted((Path(__file__).parents[3] / "corpus" / "kineto").iterdir())
EVENTS = trace_events()
TEXT = kineto(EVENTS, rank=0, world_size=1)
NUMBERS = [0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 1e308, -1e308, 1e-308, 0.5]
VALUES: list[Any] = [
    *NUMBERS,
    None,
    True,
    "",
    "x",
    "ProfilerStep#7",
    "nccl",
    [],
    {},
    [[]],
    {"a": 1},
    "\x00",
    "},{",
    "\ud7ff" * 9,
]
NAMES = ["ph", "cat", "name", "pid", "tid", "ts", "dur", "args"]
ARGUMENTS = [
    "correlation",
    "In msg nelems",
    "Seq",
    "dtype",
    "Process Group Name",
    "Process Group Ranks",
    "Input Dims",
]
HEADERS = [
    "distributedInfo",
    "baseTimeNanoseconds",
    "host_name",
    "schemaVersion",
    "deviceProperties",
]


def check(paths: list[Path]) -> None:
    try:
        analysis = analyze_trace(read_recordings(paths))
    except TraceError as error:
        assert error.message
        assert len(error.message) < 2000
        return
    for rank in analysis.per_rank:
        seconds = (rank.window_seconds, rank.compute_seconds, rank.communication_seconds)
        assert all(math.isfinite(value) and 0 <= value < 30 * 86400 for value in seconds)
        assert rank.compute_seconds <= rank.window_seconds * 1.001
    assert analysis.sync_stall_percent is None or 0 <= analysis.sync_stall_percent <= 100.001


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_traces_that_once_were_hostile(path: Path) -> None:
    check([path])


def changed_events(changes: list[tuple[int, str, str, Any]]) -> Iterator[dict[str, Any]]:
    for place, event in enumerate(EVENTS):
        changed = dict(event)
        for where, name, argument, value in changes:
            if where == place and name == "args" and isinstance(changed["args"], dict):
                changed["args"] = {**changed["args"], argument: value}
            elif where == place:
                changed[name] = value
        yield changed


@EXAMPLES
@given(
    st.lists(
        st.tuples(
            st.integers(0, len(EVENTS) - 1),
            st.sampled_from(NAMES),
            st.sampled_from(ARGUMENTS),
            st.sampled_from(VALUES),
        ),
        max_size=4,
    ),
    st.dictionaries(st.sampled_from(HEADERS), st.sampled_from(VALUES), max_size=1),
)
def test_values_of_a_kineto_trace(
    tmp_path: Path, changes: list[tuple[int, str, str, Any]], header: dict[str, Any]
) -> None:
    content = json.loads(TEXT) | {"traceEvents": list(changed_events(changes))} | header
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    check([path])


@EXAMPLES
@given(
    st.lists(
        st.tuples(st.integers(0, len(TEXT)), st.integers(0, 300), st.binary(max_size=12)),
        min_size=1,
        max_size=3,
    )
)
def test_bytes_of_a_kineto_trace(tmp_path: Path, changes: list[tuple[int, int, bytes]]) -> None:
    content = TEXT.encode()
    for start, length, piece in changes:
        content = content[:start] + piece + content[start + length :]
    path = tmp_path / "rank0.json"
    path.write_bytes(content)
    check([path])


def columns(path: Path) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        tables = [
            row[0]
            for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        found = [
            (table, row[1])
            for table in tables
            for row in database.execute(f"PRAGMA table_info({table})")
        ]
    database.close()
    return found


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = export().write(tmp_path_factory.mktemp("nsys") / "sound.sqlite")
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("PRAGMA writable_schema = ON")
        database.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') WHERE type = 'table'"
        )
    database.close()
    return path


SQL = [
    "NULL",
    "'x'",
    "''",
    "-1",
    "0",
    "9223372036854775807",
    "-9223372036854775808",
    "1e300",
    "x'00ff'",
    "0.5",
]


@EXAMPLES
@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.sampled_from(SQL), st.integers(1, 9)),
        min_size=1,
        max_size=3,
    )
)
def test_values_of_an_nsys_export(
    tmp_path: Path, sound: Path, changes: list[tuple[int, str, int]]
) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(sound.read_bytes())
    known = columns(path)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for place, value, every in changes:
            table, column = known[place % len(known)]
            with contextlib.suppress(sqlite3.IntegrityError):  # a primary key is a whole number
                database.execute(
                    f"UPDATE OR IGNORE {table} SET {column} = {value} WHERE rowid % {every} = 0"
                )
    database.close()
    check([path])


@EXAMPLES
@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), min_size=1, max_size=8),
    st.floats(0.1, 1),
)
def test_bytes_of_an_nsys_export(
    tmp_path: Path, sound: Path, changes: list[tuple[float, int]], kept: float
) -> None:
    content = bytearray(sound.read_bytes())
    for place, value in changes:
        content[int(place * (len(content) - 1))] = value
    path = tmp_path / "a.sqlite"
    path.write_bytes(content[: int(len(content) * (1 if kept > 0.4 else kept))])
    check([path])


ENDLESS = (
    "CREATE VIEW {table} AS WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM a) SELECT "
    "n AS {column} FROM a"
)
STRUCTURE = [
    "DROP TABLE {table}",
    "ALTER TABLE {table} RENAME TO other_name",
    "ALTER TABLE {table} RENAME COLUMN {column} TO other_name",
    "ALTER TABLE {table} DROP COLUMN {column}",
    "DELETE FROM {table}",
    "INSERT OR IGNORE INTO {table} SELECT * FROM {table}",
    f"DROP TABLE {{table}}; {ENDLESS}",
    "DROP TABLE {table}; CREATE VIRTUAL TABLE {table} USING fts5({column})",
    "DROP TABLE {table}; CREATE TABLE {table} ({column} INTEGER PRIMARY KEY) WITHOUT ROWID",
    "DROP TABLE {table}; CREATE TABLE {table} (other, {column} AS (hex(zeroblob(1000000))))",
    "UPDATE {table} SET {column} = CAST(zeroblob(3000000) AS TEXT)",
    "CREATE INDEX damaged ON {table} ({column}); PRAGMA writable_schema = ON; "
    "UPDATE sqlite_master SET rootpage = 1 WHERE name = 'damaged'",
    "CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
    "PRAGMA user_version = -5",
    "PRAGMA encoding = 'UTF-16le'",
]


@EXAMPLES
@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.sampled_from(STRUCTURE)), min_size=1, max_size=3)
)
def test_structure_of_an_nsys_export(
    tmp_path: Path, sound: Path, changes: list[tuple[int, str]]
) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(sound.read_bytes())
    known = columns(path)
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        for place, statements in changes:
            table, column = known[place % len(known)]
            with contextlib.suppress(
                sqlite3.DatabaseError
            ):  # an earlier change has taken it away, or an index needs it
                database.executescript(statements.format(table=table, column=column))
    database.close()
    check([path])
