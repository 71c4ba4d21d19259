"""Exports that nsys never writes: made from sound ones."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing
from pathlib import Path

from tests.features.trace.readers.builders import two_ranks

KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_PAGE = 4096
_INTERIOR = 5
"""Type of a page of a table that leads to other pages."""
ENDLESS = (
    "DROP TABLE {table}; CREATE VIEW {table} AS WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT "
    "n + 1 FROM a) SELECT n AS id, n AS value, n AS name FROM a"
)


def sound(path: Path) -> Path:
    """Two ranks, with copies and waits, of columns that take any value."""
    export = two_ranks(launched=True)
    for pid in (1, 2):
        for number in range(24):
            export.copy(pid, number * 200_000 + 150_000, number * 200_000 + 160_000, 9, (1, 1, 2))
    export.add("TARGET_INFO_SESSION_START_TIME", utcEpochNs=10**18)
    export.write(path)
    return edited(
        path,
        "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') "
        "WHERE type = 'table'",
    )


def edited(path: Path, statements: str) -> Path:
    """The export after these statements."""
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.executescript(statements)
    return path


def multiplied(path: Path, table: str, depth: int = 5) -> Path:
    """The export with a table whose pages stand in it many times: rows without end in a file that
    is hardly larger."""
    columns = "t.*"
    if table == "StringIds":
        columns = "t.id + 100 * n, t.value || hex(zeroblob(50))"
    edited(
        path,
        f"PRAGMA page_size = {_PAGE}; VACUUM; WITH RECURSIVE a(n) AS (SELECT 1 UNION ALL SELECT "
        f"n + 1 FROM a WHERE n < 200) INSERT INTO {table} SELECT {columns} FROM {table} t, a",
    )
    with closing(sqlite3.connect(path)) as database:
        ((root,),) = database.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)
        ).fetchall()
    content = bytearray(path.read_bytes())
    pages = len(content) // _PAGE
    top = content[(root - 1) * _PAGE : root * _PAGE]
    assert top[0] == _INTERIOR
    (leaf,) = struct.unpack_from(">I", top, 8)
    for level in range(depth):
        below = leaf if level == depth - 1 else pages + level + 1
        page = _all_leading_to(top, below)
        if level == 0:
            content[(root - 1) * _PAGE : root * _PAGE] = page
        else:
            content += page
    content[28:32] = struct.pack(">I", len(content) // _PAGE)
    path.write_bytes(content)
    return path


def _all_leading_to(page: bytearray, below: int) -> bytes:
    changed = bytearray(page)
    (cells,) = struct.unpack_from(">H", page, 3)
    places = [8, *struct.unpack_from(f">{cells}H", page, 12)]
    for place in places:
        struct.pack_into(">I", changed, place, below)
    return bytes(changed)
