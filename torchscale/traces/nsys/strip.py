"""An export without the environment that nsys recorded with it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from torchscale.errors import OutputError, TraceError
from torchscale.traces.nsys.database import open_database

ENVIRONMENT_TABLES = ("META_DATA_CAPTURE", "TARGET_INFO_SYSTEM_ENV", "TARGET_INFO_PROCESS_ENV")
"""Tables that hold the recorded environment, with every token in it."""


def strip_environment(source: Path, target: Path) -> tuple[str, ...]:
    """Write a copy of an export without the recorded environment; returns the tables that were left out.

    Raises:
        TraceError: it is not a readable SQLite database, or ``target`` exists.
        OutputError: the copy cannot be written; nothing is left of it, since half a copy may still hold the secret.
    """
    if target.exists():
        raise TraceError(f"{target} exists already", hint="name a file that does not")
    with open_database(source) as database:
        present = tuple(table for table in ENVIRONMENT_TABLES if database.has(table))
        try:
            with closing(sqlite3.connect(target)) as copy:
                database.connection.backup(copy)
                for table in present:
                    copy.execute(f"DROP TABLE {table}")
                copy.commit()
                copy.execute("VACUUM")  # dropped pages would still hold the text
        except BaseException as error:
            target.unlink(missing_ok=True)
            if isinstance(error, sqlite3.Error):
                raise OutputError(
                    f"cannot write {target}: {error}", hint="free space or choose another file"
                ) from error
            raise
    return present
