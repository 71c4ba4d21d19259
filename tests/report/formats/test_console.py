"""Documents of every kind on terminals of every width: no word and no figure is cut or broken."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator

import pytest
from rich.color import Color
from rich.console import Console
from rich.style import Style

from tests.report.formats.test_accessibility import comparison
from tests.report.test_build import hostile_run, mixed_run
from tests.report.test_machine import machine_summary
from tests.report.test_sections import many_cells
from torchscale.analysis.summary.run import summarize
from torchscale.report.build import build_document
from torchscale.report.document import (
    Block,
    Bullets,
    ChartGrid,
    Details,
    Document,
    Overview,
    Paragraph,
    QuestionAnswer,
    Section,
)
from torchscale.report.formats.console import MAX_ROWS, print_blocks, print_document
from torchscale.report.formats.console_text import STYLES
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue, Tone
from torchscale.util.text import strip_control

WIDTHS = (60, 80, 120, 200)
DOCUMENTS: dict[str, Callable[[], Document]] = {
    "run": lambda: build_document(summarize(mixed_run())),
    "hostile run": lambda: build_document(summarize(hostile_run())),
    "many cells": lambda: build_document(many_cells()),
    "machine": lambda: build_document(machine_summary()),
    "comparison": comparison,
}


def printed(
    what: Document | list[Block], width: int, *, terminal: bool = True, **how: object
) -> list[str]:
    console = Console(
        file=io.StringIO(), width=width, force_terminal=terminal, color_system=None, emoji=False
    )
    if isinstance(what, Document):
        print_document(what, console, **how)  # type: ignore[arg-type]
    else:
        print_blocks(what, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def shown_blocks(blocks: tuple[Block, ...]) -> Iterator[Paragraph | Bullets | Table]:
    for block in blocks:
        if isinstance(block, Details):
            if block.unfolded:
                yield from shown_blocks(block.blocks)
        elif not isinstance(block, ChartGrid) and not (
            isinstance(block, Paragraph) and block.of_charts
        ):
            yield block


def figures(table: Table) -> Iterator[str]:
    """What of a table stays together: words, numbers with their units, intervals."""
    for row in table.rows[:MAX_ROWS]:
        for column, value in zip(table.columns, row, strict=True):
            text = strip_control(" ".join(value.text.split()))
            if text == "–":
                continue
            if column.numeric:
                yield from text.replace(" (", "\n(").split("\n")
            else:
                yield from text.split()
                yield from re.findall(r"\d (?:%|s|ms|µs|[KMGT]?i?B)(?![\w/])", text)
    for number, column in enumerate(table.columns):
        if any(row[number].text not in ("", "–") for row in table.rows[:MAX_ROWS]):
            yield from column.title.split()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_every_word_and_figure_of_every_cell_is_whole(kind: str, width: int) -> None:
    document = DOCUMENTS[kind]()
    lines = printed(document, width)
    text = "\n".join(lines)
    tables = [
        block.compact()
        for section in document.sections
        for block in shown_blocks(section.blocks)
        if isinstance(block, Table)
    ]
    assert tables
    missing = {figure for table in tables for figure in figures(table) if figure not in text}
    assert missing == set()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", DOCUMENTS)
def test_no_line_is_wider_than_the_terminal(kind: str, width: int) -> None:
    """But for words that are longer, and lines that are to be copied."""
    document = DOCUMENTS[kind]()
    copied = {
        line
        for section in document.sections
        for block in section.blocks
        if isinstance(block, Paragraph) and block.code
        for line in block.text.splitlines()
    }
    wide = [
        line
        for line in printed(document, width)
        if len(line) > width
        and line not in copied
        and max(map(len, re.split(r"(?<!\d) ", line))) < width - 10
    ]
    assert wide == []


def test_a_table_without_room_sets_columns_below_their_row_and_intervals_below_values() -> None:
    table = Table(
        "All cells",
        (Column("model"), Column("samples/s", True), Column("why it failed", prose=True)),
        (
            (TableValue("resnet50"), TableValue("1,234.5 (1,200.5 to 1,260.5)"), TableValue("")),
            (TableValue("gpt2"), TableValue("–"), TableValue("rank 1 had no memory left")),
        ),
    )
    assert printed([table], 80) == [
        "All cells",
        "model                        samples/s  why it failed",
        "resnet50  1,234.5 (1,200.5 to 1,260.5)",
        "gpt2                                 –  rank 1 had no memory left",
    ]
    assert printed([table], 44) == [
        "All cells",
        "model                        samples/s",
        "resnet50  1,234.5 (1,200.5 to 1,260.5)",
        "gpt2                                 –",
        "  why it failed: rank 1 had no memory left",
    ]
    assert printed([table], 32) == [
        "All cells",
        "model                samples/s",
        "resnet50               1,234.5",
        "          (1,200.5 to 1,260.5)",
        "gpt2                         –",
        "  why it failed: rank 1 had no",
        "    memory left",
    ]


def test_sentences_break_between_words_on_a_terminal_and_never_in_a_file() -> None:
    sentence = Paragraph("A sentence with 12.5 GB of words that is longer than its terminal")
    assert printed([sentence], 20) == [
        "A sentence with",
        "12.5 GB of words",
        "that is longer than",
        "its terminal",
    ]
    assert printed([sentence], 20, terminal=False) == [sentence.text]
    command = Paragraph("torchscale report results/a-very-long-name --format html", code=True)
    assert printed([command], 20) == [command.text]


def test_a_command_that_is_to_be_copied_stands_on_a_line_of_its_own() -> None:
    said = Paragraph("Results: results/demo. Next: torchscale report results/demo --format html")
    assert printed([said], 48) == [
        "Results: results/demo. Next:",
        "torchscale report results/demo --format html",
    ]
    quoted = Paragraph("hint: keep one with `torchscale compare RUN --save NAME` first")
    assert printed([quoted], 40) == [
        "hint: keep one with",
        "`torchscale compare RUN --save NAME`",
        "first",
    ]
    several = Paragraph("Method: torchscale docs method. Causes: torchscale docs diagnosis.")
    assert max(map(len, printed([several], 40))) <= 40


def test_a_column_without_values_goes_before_one_with_values() -> None:
    table = Table(
        "",
        (Column("cell"), Column("verdict"), Column("warnings")),
        ((TableValue("tiny-resnet"), TableValue("unclear"), TableValue("")),),
    )
    assert printed([table], 24) == ["cell         verdict", "tiny-resnet  unclear"]


def test_columns_of_numbers_alone_may_stand_one_space_apart() -> None:
    """As the pairs of many ranks; beside a text, one space does not tell columns apart."""
    numbers = tuple(Column(str(rank), numeric=True) for rank in range(4))
    row = (TableValue("10.25"),) * 4
    assert printed([Table("", numbers, (row,))], 24)[-1] == "10.25 10.25 10.25 10.25"
    mixed = (Column("node"), *numbers[1:])
    assert printed([Table("", mixed, (row,))], 24)[-2:] == ["10.25  10.25  10.25", "  3: 10.25"]


def test_a_short_first_screen_says_what_else_there_is() -> None:
    document = DOCUMENTS["many cells"]()
    lines = printed(document, 80, anchors=["cells"], elsewhere="torchscale report has them.")
    assert len(lines) < 50
    assert lines[0].startswith("Scales to 2 CPU ranks")
    assert "What failed" in lines
    assert any(line.startswith("First 20 of 320 cells") for line in lines)
    assert " ".join(lines[-3:-1]).startswith("Not shown: All cells, Scaling, Step times")
    assert lines[-1] == "torchscale report has them."


def test_a_long_table_says_how_many_rows_are_left() -> None:
    rows = tuple((TableValue(f"row-{number}"),) for number in range(MAX_ROWS + 2))
    table = Table("Rows", (Column("name"),), rows)
    document = Document("Many", "", (), (), (Section("Rows", "rows", (table,)),))
    lines = printed(document, 80)
    assert lines[-1] == "… and 2 more"
    assert f"row-{MAX_ROWS - 1}" in lines and f"row-{MAX_ROWS}" not in lines
    assert f"row-{MAX_ROWS + 1}" in printed([table], 80)


def test_what_the_shown_rows_share_and_others_do_not_stays_in_its_rows() -> None:
    one, other = ("a node with a long name", "another node with a name")
    texts = [one] * (MAX_ROWS + 1) + [other]
    rows = tuple(
        (TableValue(f"row-{number}"), TableValue(text)) for number, text in enumerate(texts)
    )
    table = Table("Rows", (Column("name"), Column("node", optional=True)), rows)
    document = Document("Many", "", (), (), (Section("Rows", "rows", (table,)),))
    for width in (80, 24):
        lines = printed(document, width)
        assert "Rows" in lines, "no caption says that all are of one node"
    assert "Rows (node a node with a long name)" in printed(
        [Table("Rows", table.columns, rows[:3])], 80
    )


def test_what_all_rows_share_needs_a_heading_to_be_named_by() -> None:
    rows = tuple((TableValue(name), TableValue("the same long text")) for name in ("a", "b"))
    untitled = Table("", (Column(""), Column("")), rows)
    lines = printed([untitled], 12)
    assert " ".join(" ".join(lines).split()).count("the same long text") == 2
    titled = Table("", (Column("name"), Column("said", optional=True)), rows)
    assert printed([titled], 80) == ["said the same long text", "name", "a", "b"]


def luminance(part: int) -> float:
    share = part / 255
    return share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4


def contrast(colour: Color, background: float) -> float:
    """As the Web Content Accessibility Guidelines define it."""
    red, green, blue = map(luminance, colour.get_truecolor())
    own = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    return (max(own, background) + 0.05) / (min(own, background) + 0.05)


@pytest.mark.parametrize("tone", [tone for tone in Tone if STYLES[tone]])
def test_colours_are_read_on_light_and_on_dark_terminals(tone: Tone) -> None:
    colour = Style.parse(STYLES[tone]).color
    assert colour is not None
    assert contrast(colour, 1.0) > 3.8
    assert contrast(colour, 0.0) > 3.8


def coloured(monkeypatch: pytest.MonkeyPatch, **variables: str) -> str:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system="256")
    status = QuestionAnswer("Fits?", "no", "one cell is out of memory", Tone.BAD)
    first = Overview(DOCUMENTS["run"]().overview.headline, (status,))  # type: ignore[union-attr]
    print_document(Document("", "", (), (), (), first), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_meaning_is_coloured_unless_no_colour_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "38;5;160m" in coloured(monkeypatch)
    assert "38;5;" not in coloured(monkeypatch, NO_COLOR="1")


def test_text_of_others_is_no_markup() -> None:
    table = Table("[bold]t[/bold]", (Column("[red]c"),), ((TableValue("[/red]:smile:"),),))
    assert printed([table], 80) == ["[bold]t[/bold]", "[red]c", "[/red]:smile:"]
