"""Documents on the terminal: the first screen, the sections that are asked for, and their tables.

No word and no figure is cut or broken. A table that is wider than the terminal breaks its texts
between words and sets intervals below their values; columns that still have no room stand below
their row, as lines ``column: value``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from torchscale.report.document import (
    DASH,
    Block,
    Bullets,
    Cause,
    ChartGrid,
    Column,
    Details,
    Document,
    Failure,
    Overview,
    Paragraph,
    Section,
    Status,
    Table,
    TableValue,
    Tone,
)
from torchscale.util.text import strip_control
from torchscale.util.words import in_brackets, plural

MAX_ROWS = 60
"""Rows of a table of a document, which other formats have whole: about two screens."""
STYLES: Mapping[Tone, str] = MappingProxyType(
    {
        Tone.PLAIN: "",
        Tone.GOOD: "color(28)",
        Tone.CAUTION: "color(130)",
        Tone.BAD: "bold color(160)",
        Tone.DIM: "color(243)",
    }
)
"""Of middle brightness: a contrast of at least 3.9 with a white and with a black background."""
_LEAST_TEXT = 16
"""Columns of a text that is broken into lines; in fewer it would be a strip of single words."""
_MOST_LINES = 4
"""Of a text beside others; one that takes more goes below its row."""
_BOUND = re.compile(r"(?<=\d) (?=\S{1,8}(?: |$))")
"""Between a number and a short word behind it, such as its unit."""
_NOTHING = ("", DASH.text)
_NO_BREAK = "\0"
_ITEM = re.compile(r" *(?:- |\d+\. )?")
"""Before the text of a line: lines that it is broken into begin below its first word."""
_MAX_FAILURES = 3
"""Excerpts of ten lines each: a screen."""


def print_document(
    document: Document,
    console: Console,
    *,
    anchors: Collection[str] | None = None,
    elsewhere: str = "",
) -> None:
    """Print the first screen and sections of a document.

    Args:
        document: What is to be printed.
        console: Where to.
        anchors: The sections; by default all.
        elsewhere: How to see the others, for the line that names them.
    """
    lines = _Lines(console)
    if document.overview is None:
        lines.say(document.title, "bold")
        _print_verdict(document, lines)
    else:
        _print_overview(document.overview, lines)
    shown = [one for one in document.sections if anchors is None or one.anchor in anchors]
    for section in shown:
        _print_section(section, console)
    left = [section.title for section in document.sections if section not in shown]
    if left and elsewhere:
        lines.say("")
        lines.say(f"Not shown: {', '.join(left)}. {elsewhere}", STYLES[Tone.DIM])


def print_blocks(blocks: Iterable[Block], console: Console, *, rows: int | None = None) -> None:
    """Print blocks below each other; of a table at most ``rows`` where there is a limit."""
    before: Block | None = None
    for block in (shown for shown in blocks if not _is_hidden(shown)):
        if before is not None and (isinstance(before, Table) or isinstance(block, Table)):
            console.print()
        _print_block(block, console, rows)
        before = block


def print_line(text: str, console: Console, tone: Tone = Tone.PLAIN) -> None:
    """Print a sentence in the colour of what it means."""
    _Lines(console).say(text, STYLES[tone])


def _is_hidden(block: Block) -> bool:
    """Charts, text about them, and what most readers do not need."""
    if isinstance(block, Details):
        return not block.unfolded
    return isinstance(block, ChartGrid) or (isinstance(block, Paragraph) and block.of_charts)


def _print_section(section: Section, console: Console) -> None:
    blocks = [block for block in section.blocks if not _is_hidden(block)]
    if not blocks:
        return
    lines = _Lines(console)
    first = blocks[0]
    is_named = isinstance(first, Table) and first.caption == section.title
    lines.say("")
    if section.title and not is_named:
        lines.say(section.title, "bold underline")
    print_blocks(blocks, console, rows=MAX_ROWS)


def _print_block(block: Block, console: Console, rows: int | None) -> None:
    lines = _Lines(console)
    if isinstance(block, Table):
        _print_table(block, console, rows)
    elif isinstance(block, Bullets):
        for item in block.items:
            lines.say(f"- {item}")
    elif isinstance(block, Paragraph):
        if block.code:
            lines.verbatim(block.text)
        else:
            lines.say(block.text)
    elif isinstance(block, Details):
        lines.say(block.title, "bold")
        print_blocks(block.blocks, console, rows=rows)


def _print_verdict(document: Document, lines: _Lines) -> None:
    for sentence in document.verdict:
        lines.say(sentence)
    for figure in document.key_figures:
        lines.say(f"{figure.label}: {figure.value}{in_brackets(figure.note)}")


def _print_overview(overview: Overview, lines: _Lines) -> None:
    lines.say(overview.headline.text, f"bold {STYLES[overview.headline.tone]}".strip())
    for status in overview.statuses:
        lines.say(_status_text(status), STYLES[status.tone], indent=2)
    if overview.causes:
        lines.say("")
        lines.say("What costs most", "bold")
    for cause in overview.causes:
        lines.say(_cause_text(cause))
    if overview.failures:
        lines.say("")
        lines.say("What failed", "bold")
    for failure in overview.failures[:_MAX_FAILURES]:
        _print_failure(failure, lines)
    if len(overview.failures) > _MAX_FAILURES:
        more = plural(len(overview.failures) - _MAX_FAILURES, "other cause")
        lines.say(f"… and {more}, in the report")


def _status_text(status: Status) -> str:
    return f"{status.question} {status.answer}: {status.text}".rstrip(".") + "."


def _cause_text(cause: Cause) -> str:
    where = ""
    if cause.cells:
        where = f" {cause.cells}."
    return f"- {cause.title}{in_brackets(cause.cost)}{where} {cause.text} {cause.advice}"


def _print_failure(failure: Failure, lines: _Lines) -> None:
    lines.say(f"{failure.state}: {failure.cells}: {failure.reason}", STYLES[Tone.BAD], indent=2)
    for line in failure.excerpt:
        lines.verbatim(f"    {line}", STYLES[Tone.DIM])


@dataclass(frozen=True)
class _Lines:
    """Sentences: broken between words on a terminal, whole in a file or pipe."""

    console: Console

    def say(self, text: str, style: str = "", indent: int = 0) -> None:
        """Print a sentence; lines after its first begin with ``indent`` spaces."""
        plain = _plain(text, self.console)
        if not self.console.is_terminal:
            self.verbatim(plain, style)
            return
        indent += len(_ITEM.match(plain)[0])  # type: ignore[index]  # the empty string matches
        first, *others = _wrapped(_words(plain), self.console.width - indent, indent)
        for line in (first, *(" " * indent + other for other in others)):
            self.verbatim(line, style)

    def verbatim(self, text: str, style: str = "") -> None:
        """Print lines as they are, however long."""
        self.console.print(text, style=style or None, markup=False, soft_wrap=True)


def _plain(text: str, console: Console) -> str:
    """The text as the console shows it: without secrets, and without what steers a terminal."""
    shown = console.render_str(text, markup=False, emoji=False, highlight=False).plain
    return strip_control(shown)


def _words(text: str) -> list[str]:
    """What is not broken: words, and numbers with their units."""
    return [word.replace(_NO_BREAK, " ") for word in _BOUND.sub(_NO_BREAK, text).split(" ")]


def _wrapped(pieces: Sequence[str], width: int, more_in_first: int = 0) -> list[str]:
    """Lines of at most ``width`` columns, unless a piece is longer."""
    lines: list[str] = []
    for piece in pieces:
        room = width + more_in_first * (len(lines) == 1)
        if lines and cell_len(lines[-1]) + 1 + cell_len(piece) <= room:
            lines[-1] += f" {piece}"
        else:
            lines.append(piece)
    return lines


def _pieces(column: Column, text: str) -> list[str]:
    """What of a value stays on one line: a number and its unit, an interval, a word."""
    if column.numeric:
        return text.replace(" (", "\n(").split("\n")
    return _words(text)


def _print_table(whole: Table, console: Console, limit: int | None) -> None:
    table = _printable(whole.compact(), console, limit)
    lines = _Lines(console)
    if table.caption:
        lines.say(table.caption, "bold")
    grid = _fitting(table, console.width)
    _print_headings(grid, lines)
    for row in table.rows:
        _print_row(grid, row, lines)
    if limit is not None and len(whole.rows) > limit:
        lines.say(f"… and {plural(len(whole.rows) - limit, 'more row')}")


def _printable(table: Table, console: Console, limit: int | None) -> Table:
    """The first rows, each value on one line and as the console shows it."""

    def plain(value: TableValue) -> TableValue:
        return value._replace(text=_plain(" ".join(value.text.split()), console))

    columns = tuple(replace(one, title=_plain(one.title, console)) for one in table.columns)
    rows = tuple(tuple(map(plain, row)) for row in table.rows[:limit])
    return replace(table, columns=columns, rows=rows)


@dataclass(frozen=True)
class _Grid:
    """Columns and how they are placed: the width of each that stands beside others, by number, and
    the space between two."""

    columns: tuple[Column, ...]
    widths: Mapping[int, int]
    gap: str


def _fitting(table: Table, room: int) -> _Grid:
    """Which columns stand beside each other, and how wide. Without room for whole texts, columns of
    prose that most rows leave empty go below; without room for broken texts the other prose, the
    last first, and then the last columns."""
    natural, least = {}, {}
    for number, column in enumerate(table.columns):
        texts = [row[number].text for row in table.rows]
        heading = max(map(cell_len, column.title.split()), default=0)
        pieces = (cell_len(piece) for text in texts for piece in _pieces(column, text))
        natural[number] = max([heading, *map(cell_len, texts)])
        least[number] = max([heading, *pieces])
        if not column.numeric:
            in_lines = max(_LEAST_TEXT, natural[number] // _MOST_LINES)
            least[number] = max(least[number], min(natural[number], in_lines))
    prose = [number for number in list(least)[1:] if table.columns[number].prose]
    if _total(natural, 2) > room:
        for number in filter(lambda number: _is_sparse(table, number), prose):
            del least[number]
    while _total(least, 1) > room and len(least) > 1:
        left = [number for number in prose if number in least]
        del least[(left or list(least))[-1]]
    gap = 1 + (_total(least, 2) <= room)
    titled = {number: cell_len(column.title) for number, column in enumerate(table.columns)}
    widths = _widened(_widened(least, natural, room, gap), titled, room, gap)
    return _Grid(table.columns, widths, " " * gap)


def _widened(
    widths: Mapping[int, int], wanted: Mapping[int, int], room: int, gap: int
) -> dict[int, int]:
    """Columns as wide as they want to be, as far as there is room, the narrowest first."""
    wide = dict(widths)
    while _total(wide, gap) < room:
        short = [number for number, width in wide.items() if width < wanted[number]]
        if not short:
            break
        wide[min(short, key=lambda number: wide[number])] += 1
    return wide


def _is_sparse(table: Table, number: int) -> bool:
    return 2 * sum(row[number].text not in _NOTHING for row in table.rows) < len(table.rows)


def _total(widths: Mapping[int, int], gap: int) -> int:
    return sum(widths.values()) + gap * (len(widths) - 1)


def _print_headings(grid: _Grid, lines: _Lines) -> None:
    """At the bottom of their lines, for rows begin at the top."""
    if not any(grid.columns[number].title for number in grid.widths):
        return
    titles = {
        number: _wrapped(grid.columns[number].title.split(), width)
        for number, width in grid.widths.items()
    }
    height = max(map(len, titles.values()))
    for number, title in titles.items():
        titles[number] = [""] * (height - len(title)) + title
    _print_beside(grid, titles, dict.fromkeys(titles, "bold"), lines)


def _print_row(grid: _Grid, row: Sequence[TableValue], lines: _Lines) -> None:
    """The values beside each other, then those that have no room, each on lines of its own."""
    texts = {
        number: _wrapped(_pieces(grid.columns[number], row[number].text), width)
        for number, width in grid.widths.items()
    }
    styles = {number: STYLES[row[number].tone] for number in texts}
    _print_beside(grid, texts, styles, lines)
    for number, (column, value) in enumerate(zip(grid.columns, row, strict=True)):
        if number not in texts and value.text not in _NOTHING:
            _print_below(column, value, lines)


def _print_beside(
    grid: _Grid, texts: Mapping[int, Sequence[str]], styles: Mapping[int, str], lines: _Lines
) -> None:
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
        lines.console.print(line, soft_wrap=True)


def _print_below(column: Column, value: TableValue, lines: _Lines) -> None:
    name = f"{column.title}:" if column.title else ""
    pieces = [*name.split(), *_pieces(column, value.text)]
    for place, text in enumerate(_wrapped(pieces, lines.console.width - 4, more_in_first=2)):
        start = 0 if place else min(len(name) + 1, len(text))
        line = Text(" " * (4 if place else 2) + text)
        line.stylize(STYLES[value.tone] or "none", start + 2)
        lines.console.print(line, soft_wrap=True)
