"""The report as data: its content in order, without layout. Renderers use nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from torchscale.report.charts import AnyChart
from torchscale.report.table import Table
from torchscale.report.values import Tone

MAX_BLOCK = 8_000
"""Maximum number of characters of preformatted text, such as a config: a few pages."""


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
