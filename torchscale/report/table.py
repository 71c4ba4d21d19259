"""Tables: columns, and the values of each row; columns may say themselves what they show of one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from torchscale.report.values import DASH, TableValue

T = TypeVar("T")

MAX_PAPER_ROWS = 300
"""Rows of a table in PDF and Markdown: several pages, which cannot be sorted or filtered."""
MAX_PAPER_COLUMNS = 10
"""Columns of a table in PDF: as many as fit A4 in a type of 8.5 points with the longest figures."""
_FEWEST_ROWS = 2
"""A single row shares every value with itself."""
_NOTHING = {DASH.text, ""}
"""Texts that say nothing."""


@dataclass(frozen=True)
class Column:
    """A table's column.

    Attributes:
        title: Heading of the column.
        numeric: Set to the right.
        prose: Broken into lines.
        aliases: Other names that a filter knows it by, such as ``ranks``.
        optional: Left out where it would not tell rows apart; a value that all rows share moves to
            the caption.
        identifies: Says which row this is, so that a table that is split for a page repeats it.
    """

    title: str
    numeric: bool = False
    prose: bool = False
    aliases: tuple[str, ...] = ()
    optional: bool = False
    identifies: bool = False


@dataclass(frozen=True)
class Table:
    """Rows under columns; ``searchable`` ones can be filtered and sorted where the medium allows
    it."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[TableValue, ...], ...]
    searchable: bool = False

    def compact(self) -> Table:
        """The table without empty columns, and without optional columns whose rows share a value:
        the caption names it."""
        if len(self.rows) < _FEWEST_ROWS:
            return self
        shared = {
            number: texts.pop()
            for number, column in enumerate(self.columns)
            if len(texts := {row[number].text for row in self.rows}) == 1
            and (column.optional or texts <= _NOTHING)
        }
        if not shared:
            return self
        named = [
            f"{self.columns[number].title} {text}"
            for number, text in shared.items()
            if text not in _NOTHING
        ]
        kept = [number for number in range(len(self.columns)) if number not in shared]
        caption = self.caption
        if named:
            names = ", ".join(named)
            caption = f"{caption} ({names})" if caption else names
        return self._part(kept, caption)

    def split(self, limit: int) -> list[Table]:
        """Tables of at most ``limit`` columns, as even as possible, each with the columns that
        identify a row."""
        names = [number for number, column in enumerate(self.columns) if column.identifies]
        others = [number for number, column in enumerate(self.columns) if not column.identifies]
        room = limit - len(names)
        if len(self.columns) <= limit or room < 1 or not names:
            return [self]
        parts = -(-len(others) // room)
        bounds = [round(len(others) * part / parts) for part in range(parts + 1)]
        return [
            self._part([*names, *others[start:end]], f"{self.caption}, part {number} of {parts}")
            for number, (start, end) in enumerate(itertools.pairwise(bounds), 1)
        ]

    def _part(self, kept: Sequence[int], caption: str) -> Table:
        return replace(
            self,
            caption=caption,
            columns=tuple(self.columns[number] for number in kept),
            rows=tuple(tuple(row[number] for number in kept) for row in self.rows),
        )

    def truncation_note(self, limit: int) -> str:
        """A note where only the first ``limit`` rows are shown; empty where all are."""
        count = len(self.rows)
        return (
            f"Showing the first {limit:,} of {count:,} rows; see summary.csv or the HTML report "
            "for all."
            if count > limit
            else ""
        )


@dataclass(frozen=True)
class ColumnOf(Generic[T]):
    """A figure or a text of each row.

    Attributes:
        title: Heading of the column.
        value: A number, a text, or what the table shows, of a row; ``None`` was not measured.
        text: The number as people read it; ``None`` for a column of texts.
        numeric: Set to the right, although ``value`` is what the table shows.
        prose, optional, identifies: As of :class:`Column`.
        shown: Whether the table has it.
    """

    title: str
    value: Callable[[T], TableValue | float | str | None]
    text: Callable[[float], str] | None = None
    numeric: bool = False
    prose: bool = False
    optional: bool = False
    identifies: bool = False
    shown: bool = True

    @property
    def column(self) -> Column:
        """Its heading."""
        numeric = self.numeric or self.text is not None
        return Column(
            self.title,
            numeric,
            self.prose,
            optional=self.optional,
            identifies=self.identifies,
        )

    def of(self, rows: Iterable[T]) -> Iterator[TableValue]:
        """Its value of each row; – where it was not measured."""
        return map(self._shown, map(self.value, rows))

    def _shown(self, value: TableValue | float | str | None) -> TableValue:
        if isinstance(value, TableValue):
            return value
        if isinstance(value, str):
            return TableValue(value)
        if value is None or self.text is None:
            return DASH
        return TableValue(self.text(value), value)


Identity = tuple[tuple[Column, ...], Sequence[tuple[TableValue, ...]]]
"""The first columns of a table, and their values in each row."""


def table_of(
    caption: str,
    columns: Sequence[ColumnOf[T]],
    rows: Sequence[T],
    identity: Identity | None = None,
    *,
    searchable: bool = False,
) -> Table:
    """A table with a line for each of ``rows``, which begins with ``identity``."""
    shown = [column for column in columns if column.shown]
    first, values = identity or ((), [()] * len(rows))
    # Column by column: a report of thousands of cells has hundreds of thousands of values.
    further = (
        zip(*(column.of(rows) for column in shown), strict=True) if shown else [()] * len(rows)
    )
    return Table(
        caption,
        (*first, *(column.column for column in shown)),
        tuple((*begin, *row) for begin, row in zip(values, further, strict=True)),
        searchable,
    )
