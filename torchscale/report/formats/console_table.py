"""Tables on the terminal, of any width: no word and no figure is cut or broken.

A table that is wider than the terminal breaks its texts between words, sets intervals below their
values, and names what all rows share in its caption; columns that still have no room stand below
their row, as lines ``column: value``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from torchscale.report.formats.console_text import (
    STYLES,
    plain_text,
    sentence_lines,
    words_of,
    wrapped,
)
from torchscale.report.table import Column, Table
from torchscale.report.values import DASH, TableValue

_LEAST_TEXT = 16
"""Columns of a text that is broken into lines; in fewer it would be a strip of single words."""
_MOST_LINES = 3
"""Of a text beside others; one that takes more goes below its row."""
_NOTHING = ("", DASH.text)


@dataclass(frozen=True)
class TableOnConsole:
    """A table as rich prints it, with at most ``limit`` rows."""

    table: Table
    limit: int | None = None

    def __rich_console__(self, console: Console, _: ConsoleOptions) -> Iterator[Text]:
        """Caption, headings, rows, and how many rows are left."""
        table = _printable(self.table.compact(), console, self.limit)
        if _total(_whole_widths(table), 2) > console.width:
            table = _printable(_with_all_optional(self.table).compact(), console, self.limit)
        if table.caption:
            yield from sentence_lines(table.caption, console, "bold")
        grid = _fitting(table, console.width)
        yield from _headings(grid)
        for row in table.rows:
            yield from _row(grid, row, console.width)
        if self.limit is not None and len(self.table.rows) > self.limit:
            yield Text(f"… and {len(self.table.rows) - self.limit:,} more")


def _printable(table: Table, console: Console, limit: int | None) -> Table:
    """The first rows and the caption, each text on one line and as the console shows it."""

    def plain(value: TableValue) -> TableValue:
        return value._replace(text=plain_text(" ".join(value.text.split()), console))

    columns = tuple(replace(one, title=plain_text(one.title, console)) for one in table.columns)
    rows = tuple(tuple(map(plain, row)) for row in table.rows[:limit])
    return replace(table, columns=columns, rows=rows)


def _with_all_optional(table: Table) -> Table:
    """Any text that all rows share may move to the caption; numbers, and the first column, stay."""
    first, *others = table.columns
    columns = (
        first,
        *(
            replace(one, optional=one.optional or (not one.numeric and bool(one.title)))
            for one in others
        ),
    )
    return replace(table, columns=columns)


def _whole_widths(table: Table) -> dict[int, int]:
    """Width of each column without broken texts; headings are broken in any case."""
    return {
        number: max(
            map(cell_len, ("", *column.title.split(), *(row[number].text for row in table.rows)))
        )
        for number, column in enumerate(table.columns)
    }


def _pieces(column: Column, text: str) -> list[str]:
    """What of a value stays on one line: a number and its unit, an interval, a word."""
    if column.numeric:
        return text.replace(" (", "\n(").split("\n")
    return words_of(text)


@dataclass(frozen=True)
class _Grid:
    """Columns and how they are placed: the width of each that stands beside others, by number, and
    the space between two."""

    columns: tuple[Column, ...]
    widths: Mapping[int, int]
    gap: str


def _fitting(table: Table, room: int) -> _Grid:
    """Which columns stand beside each other, and how wide. Without room for whole texts, columns
    that no row fills and columns of prose that most rows leave empty go below; without room for
    broken texts the other prose, the last first, and then the last columns."""
    natural, least = _whole_widths(table), {}
    for number, column in enumerate(table.columns):
        texts = [row[number].text for row in table.rows]
        heading = max(map(cell_len, column.title.split()), default=0)
        pieces = (cell_len(piece) for text in texts for piece in _pieces(column, text))
        least[number] = max([heading, *pieces])
        if not column.numeric:
            in_lines = max(_LEAST_TEXT, natural[number] // _MOST_LINES)
            least[number] = max(least[number], min(natural[number], in_lines))
    prose = [number for number in list(least)[1:] if table.columns[number].prose]
    if _total(natural, 2) > room:
        for number in list(least)[1:]:
            filled = _filled(table, number)
            if not filled or (number in prose and 2 * filled < len(table.rows)):
                del least[number]
    while _total(least, 2) > room and len(least) > 1 and not _is_matrix(table, least, room):
        left = [number for number in prose if number in least]
        del least[(left or list(least))[-1]]
    gap = 1 + (_total(least, 2) <= room)
    titled = {number: cell_len(column.title) for number, column in enumerate(table.columns)}
    of_texts = {number: natural[number] for number in least if not table.columns[number].numeric}
    widths = _whole(least, natural, room, gap)
    widths = _widened(widths, of_texts, room, gap)
    widths = _whole(widths, titled, room, gap)
    return _Grid(table.columns, widths, " " * gap)


def _whole(
    widths: Mapping[int, int], wanted: Mapping[int, int], room: int, gap: int
) -> dict[int, int]:
    """As many columns as there is room for as wide as they want to be, and the others as they are:
    numbers and headings gain nothing from a part of it."""
    wide = dict(widths)
    for number in sorted(wide, key=lambda number: wanted[number] - wide[number]):
        missing = wanted[number] - wide[number]
        if 0 < missing <= room - _total(wide, gap):
            wide[number] += missing
    return wide


def _widened(
    widths: Mapping[int, int], wanted: Mapping[int, int], room: int, gap: int
) -> dict[int, int]:
    """Texts wider, up to what they want to be and as far as there is room, the narrowest first:
    they are then broken into fewer lines."""
    wide = dict(widths)
    while _total(wide, gap) < room:
        short = [number for number, width in wanted.items() if wide[number] < width]
        if not short:
            break
        wide[min(short, key=lambda number: wide[number])] += 1
    return wide


def _filled(table: Table, number: int) -> int:
    """Rows that have a value in a column."""
    return sum(row[number].text not in _NOTHING for row in table.rows)


def _is_matrix(table: Table, widths: Mapping[int, int], room: int) -> bool:
    """Numbers alone, which one space keeps apart, and with that there is room for them."""
    return _total(widths, 1) <= room and all(table.columns[number].numeric for number in widths)


def _total(widths: Mapping[int, int], gap: int) -> int:
    return sum(widths.values()) + gap * (len(widths) - 1)


def _headings(grid: _Grid) -> Iterator[Text]:
    """At the bottom of their lines, for rows begin at the top."""
    if not any(grid.columns[number].title for number in grid.widths):
        return
    titles = {
        number: wrapped(grid.columns[number].title.split(), width)
        for number, width in grid.widths.items()
    }
    height = max(map(len, titles.values()))
    for number, title in titles.items():
        titles[number] = [""] * (height - len(title)) + title
    yield from _beside(grid, titles, dict.fromkeys(titles, "bold"))


def _row(grid: _Grid, row: Sequence[TableValue], room: int) -> Iterator[Text]:
    """The values beside each other, then those that have no room, each on lines of its own."""
    texts = {
        number: wrapped(_pieces(grid.columns[number], row[number].text), width)
        for number, width in grid.widths.items()
    }
    styles = {number: STYLES[row[number].tone] for number in texts}
    yield from _beside(grid, texts, styles)
    for number, (column, value) in enumerate(zip(grid.columns, row, strict=True)):
        if number not in texts and value.text not in _NOTHING:
            yield from _below(column, value, room)


def _beside(
    grid: _Grid, texts: Mapping[int, Sequence[str]], styles: Mapping[int, str]
) -> Iterator[Text]:
    """A row of as many lines as its highest value."""
    for place in range(max(map(len, texts.values()), default=0)):
        line = Text()
        for number, width in grid.widths.items():
            text = texts[number][place] if place < len(texts[number]) else ""
            space = " " * (width - cell_len(text))
            if grid.columns[number].numeric:
                line.append(space).append(text, styles[number] or None).append(grid.gap)
            else:
                line.append(text, styles[number] or None).append(space + grid.gap)
        line.rstrip()
        yield line


def _below(column: Column, value: TableValue, room: int) -> Iterator[Text]:
    name = f"{column.title}:" if column.title else ""
    pieces = [*name.split(), *_pieces(column, value.text)]
    for place, text in enumerate(wrapped(pieces, room - 4, more_in_first=2)):
        start = 0 if place else min(len(name) + 1, len(text))
        line = Text(" " * (4 if place else 2) + text)
        line.stylize(STYLES[value.tone] or "none", start + 2)
        yield line
