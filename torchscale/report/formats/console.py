"""Documents on the terminal: the first screen, and the sections that are asked for."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rich.cells import cell_len
from rich.console import Console

from torchscale.report.document import (
    Block,
    Bullets,
    ChartGrid,
    Details,
    Document,
    Failure,
    LostTime,
    Overview,
    Paragraph,
    QuestionAnswer,
    Section,
)
from torchscale.report.formats.console_table import TableOnConsole
from torchscale.report.formats.console_text import (
    STYLES,
    plain_text,
    say,
    verbatim,
    words_of,
    wrapped,
)
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue, Tone

MAX_ROWS = 60
"""Rows of a table of a document, which other formats have whole: about two screens."""
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
        elsewhere: How to see the others, below the line that names them.
    """
    if document.overview is None:
        say(console, document.title, "bold")
        _print_verdict(document, console)
    else:
        _print_overview(document.overview, console)
    shown = [one for one in document.sections if anchors is None or one.anchor in anchors]
    for section in shown:
        _print_section(section, console)
    left = [section.title for section in document.sections if section not in shown]
    if left and elsewhere:
        console.print()
        say(console, f"Not shown: {', '.join(left)}.", STYLES[Tone.DIM])
        verbatim(console, elsewhere, STYLES[Tone.DIM])


def print_blocks(blocks: Iterable[Block], console: Console, *, rows: int | None = None) -> None:
    """Print blocks below each other; of a table at most ``rows`` where there is a limit."""
    before: Block | None = None
    for block in (shown for shown in blocks if not _is_hidden(shown)):
        if before is not None and (isinstance(before, Table) or isinstance(block, Table)):
            console.print()
        _print_block(block, console, rows)
        before = block


def print_pairs(pairs: Iterable[tuple[str, str]], console: Console) -> None:
    """Print names, and beside each what it stands for: below it where a word has no room there."""
    plain = [
        (plain_text(name, console), plain_text(" ".join(text.split()), console))
        for name, text in pairs
    ]
    width = max((cell_len(name) for name, _ in plain), default=0) + 2
    if 2 * width > console.width:
        rows = tuple((TableValue(name), TableValue(text)) for name, text in plain)
        print_blocks([Table("", (Column(""), Column("", prose=True)), rows)], console)
        return
    for name, text in plain:
        words, first, indent = words_of(text), name + " " * (width - cell_len(name)), width
        if max(map(cell_len, words)) > console.width - width:
            verbatim(console, name)
            first, indent = "  ", 2
        for line in wrapped(words, console.width - indent):
            verbatim(console, f"{first}{line}".rstrip())
            first = " " * indent


def print_line(text: str, console: Console, tone: Tone = Tone.PLAIN) -> None:
    """Print a sentence in the colour of what it means."""
    say(console, text, STYLES[tone])


def _is_hidden(block: Block) -> bool:
    """Charts, text about them, and what most readers do not need."""
    if isinstance(block, Details):
        return not block.unfolded
    return isinstance(block, ChartGrid) or (isinstance(block, Paragraph) and block.of_charts)


def _print_section(section: Section, console: Console) -> None:
    blocks = [block for block in section.blocks if not _is_hidden(block)]
    if not blocks:
        return
    first = blocks[0]
    is_named = isinstance(first, Table) and first.caption == section.title
    console.print()
    if section.title and not is_named:
        say(console, section.title, "bold underline")
    print_blocks(blocks, console, rows=MAX_ROWS)


def _print_block(block: Block, console: Console, rows: int | None) -> None:
    if isinstance(block, Table):
        console.print(TableOnConsole(block, rows), soft_wrap=True)
    elif isinstance(block, Bullets):
        for item in block.items:
            say(console, f"- {item}")
    elif isinstance(block, Paragraph):
        if block.code:
            verbatim(console, block.text)
        else:
            say(console, block.text)
    elif isinstance(block, Details):
        say(console, block.title, "bold")
        print_blocks(block.blocks, console, rows=rows)


def _print_verdict(document: Document, console: Console) -> None:
    for sentence in document.verdict:
        say(console, sentence)
    for figure in document.key_figures:
        note = f" ({figure.note})" if figure.note else ""
        say(console, f"{figure.label}: {figure.value}{note}")


def _print_overview(overview: Overview, console: Console) -> None:
    say(console, overview.headline.text, f"bold {STYLES[overview.headline.tone]}".strip())
    for status in overview.statuses:
        say(console, _status_text(status), STYLES[status.tone], indent=2)
    if overview.causes:
        console.print()
        say(console, "What costs most", "bold")
    for cause in overview.causes:
        say(console, _cause_text(cause))
    if overview.failures:
        console.print()
        say(console, "What failed", "bold")
    for failure in overview.failures[:_MAX_FAILURES]:
        _print_failure(failure, console)
    if len(overview.failures) > _MAX_FAILURES:
        more = len(overview.failures) - _MAX_FAILURES
        say(console, f"… and {more:,} for other reasons, in the report")


def _status_text(status: QuestionAnswer) -> str:
    return f"{status.question} {status.answer}: {status.text}".rstrip(".") + "."


def _cause_text(cause: LostTime) -> str:
    cost = f" ({cause.cost})" if cause.cost else ""
    where = f", in {cause.cells}" if cause.cells else ""
    return f"- {cause.title}{cost}{where}. {cause.text} {cause.advice}"


def _print_failure(failure: Failure, console: Console) -> None:
    say(console, f"{failure.state}: {failure.cells}: {failure.reason}", STYLES[Tone.BAD], indent=2)
    for line in failure.excerpt:
        verbatim(console, f"    {line}", STYLES[Tone.DIM])
