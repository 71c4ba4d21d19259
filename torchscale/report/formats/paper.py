"""Tables on paper: in a smaller type, or in parts, where they are wider than a page."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchscale.report.table import MAX_PAPER_COLUMNS, MAX_PAPER_ROWS, Column, Table

_PAGE = 521.0
"""Width of A4 between its margins of 13 mm, points."""
_TYPE, _SMALL_TYPE = 8.5, 7.0
"""Sizes of a table's type, points; smaller than 7 is hard to read in print."""
_PADDING = 5.7
"""Left and right of a column: 1 mm each, points."""
_FIRST, _PROSE = 48.0, 85.0
"""Least widths, points: of the first column, which names the row (17 mm), and of sentences (30
mm); as in the template."""
_NARROW_EM, _WIDE_EM, _EM = 0.4, 0.95, 0.65
_WIDTHS = {**dict.fromkeys(" .,:;()[]'|ijl-", _NARROW_EM), **dict.fromkeys("mwMW%@=+−×", _WIDE_EM)}
"""Widths of DejaVu Sans' characters, shares of the size of the type: the largest of the narrow, of
the wide and of all others that tables hold."""
_BOLD = 1.1
"""How much wider a heading's characters are."""


@dataclass(frozen=True)
class PaperTable:
    """A table that fits a page: ``dense`` in the smaller type, with long names broken at ``_`` and
    ``=``."""

    table: Table
    dense: bool


def paper_tables(table: Table) -> list[PaperTable]:
    """The table as it goes on paper, in as few parts as fit the width of a page."""
    compact = table.compact()
    names = sum(column.identifies for column in compact.columns)
    parts = compact.split(MAX_PAPER_COLUMNS)
    for columns in range(MAX_PAPER_COLUMNS, names, -1):
        parts = compact.split(columns)
        if all(_narrowest(part, _SMALL_TYPE) <= _PAGE for part in parts):
            break
    return [PaperTable(part, _narrowest(part, _TYPE) > _PAGE) for part in parts]


def breakable(text: str) -> str:
    """A name that may go to the next line after ``_`` and ``=`` too."""
    return re.sub(r"(?<=[_=])(?=\w)", "\u200b", text)


def _narrowest(table: Table, size: float) -> float:
    """The least width of a table in a type of this size, points."""
    return sum(
        _column_width(
            column,
            [row[number].text for row in table.rows[:MAX_PAPER_ROWS]],
            size,
            first=not number,
        )
        for number, column in enumerate(table.columns)
    )


def _column_width(column: Column, texts: list[str], size: float, *, first: bool) -> float:
    dense = size < _TYPE
    pieces = {piece for text in texts for piece in _pieces(text, column, dense=dense)}
    heading = max((_em(word) for word in column.title.split()), default=0.0) * _BOLD
    longest = max(heading, max((_em(piece) for piece in pieces), default=0.0)) * size
    if column.prose:
        longest = max(_PROSE, heading * size)
    return max(longest, _FIRST if first else 0.0) + _PADDING


def _pieces(text: str, column: Column, *, dense: bool) -> list[str]:
    """What stays on one line: a figure with its unit, a word, the part of a name before a
    hyphen."""
    if column.numeric:
        return re.split(r" (?=\()", text)
    return re.split(r"\s+|(?<=-)|\u200b", breakable(text) if dense else text)


def _em(text: str) -> float:
    return sum(_WIDTHS.get(character, _EM) for character in text)
