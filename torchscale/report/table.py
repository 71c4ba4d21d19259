"""Tables whose columns say themselves what they show of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from torchscale.report.document import DASH, Column, Table, TableValue

T = TypeVar("T")


@dataclass(frozen=True)
class ColumnOf(Generic[T]):
    """A figure or a text of each row.

    Attributes:
        title: Heading of the column.
        value: A number, a text, or what the table shows, of a row; ``None`` was not measured.
        text: The number as people read it; ``None`` for a column of texts.
        numeric: Set to the right, although ``value`` is what the table shows.
        prose, optional, identifies: As of :class:`~torchscale.report.document.Column`.
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

    def of(self, row: T) -> TableValue:
        """Its value of a row; – where it was not measured."""
        value = self.value(row)
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
    return Table(
        caption,
        (*first, *(column.column for column in shown)),
        tuple(
            (*begin, *(column.of(row) for column in shown))
            for begin, row in zip(values, rows, strict=True)
        ),
        searchable,
    )
