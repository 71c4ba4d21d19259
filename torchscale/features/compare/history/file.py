"""A history: the results of many runs in one SQLite file, to which rows are only added.

Rows are never changed: triggers refuse it. A run folder that went on after it was added is added
once more; the newest row of a run counts. The file has no companions (no write-ahead log), so that
it can be copied whenever nothing writes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from torchscale.features.compare.history.database import (
    MAX_RESULT_BYTES,
    HistoryDatabase,
    Row,
    open_database,
)
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
_T = TypeVar("_T")


@contextmanager
def open_history(path: Path | None, *, create: bool = False) -> Iterator[HistoryFile]:
    """Open a history, and close it afterwards. Arguments and errors as of
    :func:`~torchscale.features.compare.history.database.open_database`."""
    with open_database(path, create=create) as database:
        yield HistoryFile(database)


class HistoryFile:
    """An open history; :func:`open_history` opens it."""

    def __init__(self, database: HistoryDatabase) -> None:
        self._database = database

    def has_folder(self, fingerprint: str) -> bool:
        """Whether a run folder with this fingerprint was added."""
        return bool(
            self._database.rows("SELECT 1 FROM folder WHERE fingerprint = ?", (fingerprint,))
        )

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
        with self._database.transaction():
            known = self._database.rows("SELECT number FROM run WHERE digest = ?", (entry.digest,))
            if known:
                number = int(str(known[0][0]))
            else:
                number = self._insert_run(entry)
            if not known:
                for cell in entry.cells:
                    self._insert_cell(number, cell)
            if fingerprint:
                self._database.execute(
                    "INSERT OR IGNORE INTO folder VALUES (?, ?)", (fingerprint, number)
                )
        return not known

    def content(self, metrics: Sequence[str] = ()) -> HistoryContent:
        """All runs, each as it was added last, and their figures.

        Args:
            metrics: Names of metrics (``throughput``); all by default.

        Raises:
            StoreError: the file is damaged.
        """
        runs = self._database.rows(
            f"SELECT {', '.join(_RUN_COLUMNS)} FROM run WHERE number IN {_NEWEST} ORDER BY "
            "measured_at, number"
        )
        outcomes = self._database.rows(
            f"SELECT {', '.join(_OUTCOME_COLUMNS)} FROM outcome WHERE run IN {_NEWEST}"
        )
        # A key is its metric (`throughput`) or begins with it (`busbw/all_reduce/fp32`).
        chosen = " OR ".join(["metric = ? OR metric GLOB ?"] * len(metrics)) or "1"
        figures = self._database.rows(
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
        rows = self._database.rows("SELECT facts FROM run WHERE number = ?", (run,))
        return self._validated(
            _FACTS, self._json(rows[0][0] if rows else None, f"the facts of run {run}")
        )

    def results(self, run: int) -> ResultSet:
        """A run as a whole.

        Raises:
            StoreError: the file is damaged.
        """
        what = f"the results of run {run}"
        rows = self._database.rows("SELECT results FROM run WHERE number = ?", (run,))
        packed = None
        if rows:
            packed = rows[0][0]
        if not isinstance(packed, bytes):
            raise self._database.damaged(what)
        unpacker = zlib.decompressobj()
        try:
            content = unpacker.decompress(packed, MAX_RESULT_BYTES)
            if not unpacker.eof:
                raise self._database.damaged(what)
            return ResultSet.model_validate_json(content)
        except (zlib.error, ValidationError) as error:
            raise self._database.damaged(what) from error

    def _insert_run(self, entry: HistoryEntry) -> int:
        columns = [name for name in _RUN_COLUMNS if name != "number"]
        packed = zlib.compress(entry.results.model_dump_json().encode())
        facts = json.dumps(entry.facts, sort_keys=True, ensure_ascii=False)
        values = [*(getattr(entry.run, name) for name in columns), entry.digest, facts, packed]
        self._insert("run", (*columns, "digest", "facts", "results"), values)
        return int(str(self._database.rows("SELECT last_insert_rowid()")[0][0]))

    def _insert_cell(self, run: int, cell: HistoryCell) -> None:
        content = cell.cell.model_dump_json()
        self._database.execute("INSERT OR IGNORE INTO cell (content) VALUES (?)", (content,))
        ((number,),) = self._database.rows("SELECT number FROM cell WHERE content = ?", (content,))
        of_cell = {**cell.outcome.model_dump(mode="json"), "run": run, "cell": number}
        of_cell |= {name: ",".join(of_cell[name]) for name in _LISTS}
        self._insert("outcome", _OUTCOME_COLUMNS, [of_cell[name] for name in _OUTCOME_COLUMNS])
        for figure in cell.figures:
            values = {**figure.model_dump(mode="json"), "run": run, "cell": number}
            self._insert("figure", _FIGURE_COLUMNS, [values[name] for name in _FIGURE_COLUMNS])

    def _insert(self, table: str, columns: Sequence[str], values: Sequence[object]) -> None:
        self._database.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
            values,
        )

    def _cells(self, wanted: set[object]) -> dict[int, AnyCell]:
        contents = {
            number: self._json(content, f"cell {number}")
            for number, content in self._database.rows("SELECT number, content FROM cell")
            if number in wanted
        }
        return self._validated(_CELLS, contents)

    def _json(self, text: object, what: str) -> object:
        try:
            content: object = json.loads(str(text))
        except (ValueError, RecursionError) as error:
            raise self._database.damaged(what) from error
        return content

    def _validated(self, adapter: TypeAdapter[_T], value: object) -> _T:
        try:
            return adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors()[0]
            raise self._database.damaged(
                f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
            ) from error


def _named(columns: Sequence[str], rows: Sequence[Row]) -> list[dict[str, object]]:
    named = [dict(zip(columns, row, strict=True)) for row in rows]
    for values in named:
        for name in _LISTS:
            if name in values:
                values[name] = tuple(filter(None, str(values[name]).split(",")))
    return named
