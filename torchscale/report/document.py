"""The report as data: its content in order, without layout. Renderers use nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, TypeVar

from torchscale.report.charts import AnyChart
from torchscale.util.text import strip_control

T = TypeVar("T")


class Tone(str, Enum):
    """The meaning of a value; renderers must not show it by colour only."""

    PLAIN = "plain"
    GOOD = "good"
    CAUTION = "caution"
    BAD = "bad"
    DIM = "dim"


MAX_TEXT = 600
"""Longer texts are cut: a megabyte in one line would take minutes to lay out."""


MAX_PAPER_ROWS = 300
"""Rows of a table in PDF and Markdown: several pages, which cannot be sorted or filtered."""
MAX_PAPER_COLUMNS = 10
"""Columns of a table in PDF: as many as fit A4 in a type of 8.5 points with the longest figures."""


_FEWEST_ROWS = 2
"""A single row shares every value with itself."""
MAX_BLOCK = 8_000
"""Maximum number of characters of preformatted text, such as a config: a few pages."""


def shortened(text: str, limit: int = MAX_TEXT) -> str:
    """``text`` for people: cut with an ellipsis where it is longer than ``limit``, and without what
    controls a terminal or the direction of writing."""
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    return strip_control(cut)


class TableValue(NamedTuple):
    """A table's entry: text for people, ``sort`` for ordering (numbers before text)."""

    text: str
    sort: float | str | None = None
    tone: Tone = Tone.PLAIN


DASH = TableValue("–", None, Tone.DIM)
"""Shown where nothing was measured."""
_NOTHING = {DASH.text, ""}
"""Texts that say nothing."""


def optional_value(number: float | None, format_number: Callable[[float], str]) -> TableValue:
    """A formatted number; – where it was not measured."""
    if number is None:
        return DASH
    return TableValue(format_number(number), number)


def optional_text(content: T | None, format_content: Callable[[T], str]) -> str:
    """A formatted content; – where it was not measured."""
    if content is None:
        return DASH.text
    return format_content(content)


def text_value(text: str, sort: float | str | None = None) -> TableValue:
    """A text; – where it is empty."""
    if not text:
        return DASH
    return TableValue(text, sort)


def caution_where(doubtful: object) -> Tone:
    """The tone of a value that is to be read with caution where something makes it doubtful."""
    if doubtful:
        return Tone.CAUTION
    return Tone.PLAIN


def only_if(condition: object, *items: T) -> tuple[T, ...]:
    """The items of a list that are in it only under a condition."""
    if condition:
        return items
    return ()


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
class Paragraph:
    """A few sentences; ``code`` is preformatted. Text ``of_charts`` is omitted in formats without
    charts."""

    text: str
    code: bool = False
    of_charts: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list of independent statements."""

    items: tuple[str, ...]


@dataclass(frozen=True)
class ChartGrid:
    """Charts side by side; ``wide`` ones take the page's width. Those whose figures a table has as
    well may be left out ``on_paper``."""

    charts: tuple[AnyChart, ...]
    wide: bool = False
    on_paper: bool = True


@dataclass(frozen=True)
class Details:
    """Blocks under a heading of their own that most readers do not need: folded on the screen
    unless ``unfolded``, left out on paper and in Markdown."""

    title: str
    blocks: tuple[Paragraph | Bullets | Table | ChartGrid, ...]
    unfolded: bool = False


Block = Paragraph | Bullets | Table | ChartGrid | Details


class ReportPart(str, Enum):
    """The parts of a run's report, in order."""

    RESULTS = "Results"
    CAUSES = "What limits it"
    MACHINE = "Machine"
    METHOD = "Method"


@dataclass(frozen=True)
class Section:
    """A titled part of the report.

    Attributes:
        title, anchor: The anchor is unique.
        blocks: Content of the section; a section without any is left out.
        group: One that belongs to a group is folded where the medium allows.
        key: Main figure of the section, shown beside the title.
        on_paper: Whether pages have it; charts that are read by zooming are for the screen.
        unfolded: Whether it stands open on the first page, before the causes.
    """

    title: str
    anchor: str
    blocks: tuple[Block, ...]
    group: ReportPart | None = None
    key: str = ""
    on_paper: bool = True
    unfolded: bool = False


@dataclass(frozen=True)
class KeyFigure:
    """A number shown at the top of the report."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Headline:
    """The answer in one sentence, with its interval; ``tone`` is plain where no grade is
    certain."""

    text: str
    tone: Tone = Tone.PLAIN


@dataclass(frozen=True)
class QuestionAnswer:
    """The answer to a question that readers come with: a word, and a line that says why. ``anchor``
    is the section with the details; empty where there is none."""

    question: str
    answer: str
    text: str
    tone: Tone = Tone.PLAIN
    anchor: str = ""


@dataclass(frozen=True)
class LostTime:
    """Time that is lost for one reason.

    Attributes:
        title: The reason.
        cost: ``10.2 % to 31.7 % of the step``; empty where it is unknown.
        cells: The cells with this cause.
        text: What was seen, in the cell where it costs most.
        advice: What to do.
    """

    title: str
    cost: str
    cells: str
    text: str
    advice: str


@dataclass(frozen=True)
class Failure:
    """Cells that failed for one reason.

    Attributes:
        cells: Which.
        state: How they ended.
        reason: Why, in one line.
        excerpt: Where: file and line, the last lines of the traceback, the path of the log.
    """

    cells: str
    state: str
    reason: str
    excerpt: tuple[str, ...] = ()


@dataclass(frozen=True)
class Overview:
    """The first screen: the answer, what it rests on, the chart that shows it, what costs most,
    what failed.

    ``rerun`` is the command that runs failed cells again; empty where none failed.
    """

    headline: Headline
    statuses: tuple[QuestionAnswer, ...] = ()
    chart: AnyChart | None = None
    causes: tuple[LostTime, ...] = ()
    failures: tuple[Failure, ...] = ()
    rerun: str = ""


@dataclass(frozen=True)
class Document:
    """A whole report: title, first screen, sections. One without an ``overview`` begins with
    sentences and key figures instead."""

    title: str
    subtitle: str
    verdict: tuple[str, ...]
    key_figures: tuple[KeyFigure, ...]
    sections: tuple[Section, ...]
    overview: Overview | None = None
    footer: str = (
        "Every value was measured or is computed from measured ones, except those named predicted, "
        "counted, rated or ideal; – means not measured."
    )

    @property
    def charts(self) -> tuple[AnyChart, ...]:
        """Every chart, in order."""
        first = (
            () if self.overview is None or self.overview.chart is None else (self.overview.chart,)
        )
        return (*first, *(chart for section in self.sections for chart in _charts(section.blocks)))

    def section(self, anchor: str) -> Section | None:
        """The section with this anchor."""
        return next((section for section in self.sections if section.anchor == anchor), None)


def _charts(blocks: Iterable[Block]) -> Iterator[AnyChart]:
    for block in blocks:
        if isinstance(block, ChartGrid):
            yield from block.charts
        elif isinstance(block, Details):
            yield from _charts(block.blocks)
