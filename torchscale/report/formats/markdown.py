"""The report as Markdown, for pull requests and job summaries: text and tables; charts stay in HTML
and PDF."""

from __future__ import annotations

import re

from torchscale.report.document import (
    Block,
    Bullets,
    ChartGrid,
    Details,
    Document,
    KeyFigure,
    LostTime,
    Paragraph,
)
from torchscale.report.table import MAX_PAPER_ROWS, Table
from torchscale.report.values import only_if
from torchscale.util.text import strip_control
from torchscale.util.words import in_brackets

MAX_SUMMARY_LINES = 60
"""Maximum number of lines of a summary: a screen of a pull request."""
_MAX_FIRST_LINES = 32
"""Maximum number of them, before the table: half, so that the table has room."""
_TABLE_FRAME = 8
"""Blank lines, heading, rule, the note on rows left out, and the line on the machine."""
_MAX_FAILURES = 6


def render_markdown(document: Document) -> str:
    """The report as Markdown, without charts."""
    parts = [f"# {_text(document.title)}", _text(document.subtitle), *_first(document)]
    for section in document.sections:
        texts = [text for block in section.blocks if (text := _block(block))]
        if texts:
            parts += [
                f"## {_text(section.title)}",
                *only_if(section.key, _text(f"{_capital(section.key)}.")),
                *texts,
            ]
    return "\n\n".join(parts) + "\n"


def render_summary(document: Document) -> str:
    """The first screen and the main table as Markdown of at most :data:`MAX_SUMMARY_LINES` lines,
    for pull requests and job summaries."""
    section = document.section("all-cells") or document.section("cells")
    table = None
    if section:
        table = next((block for block in section.blocks if isinstance(block, Table)), None)
    parts = [f"## {_text(document.title)}", *_first(document)]
    lines = "\n\n".join(parts).splitlines()[:_MAX_FIRST_LINES]
    if table is not None:
        rows = MAX_SUMMARY_LINES - len(lines) - _TABLE_FRAME
        lines += ["", *_rows(table.compact(), rows)]
        if len(table.rows) > rows:
            lines += ["", f"{len(table.rows) - rows:,} more rows in the report."]
    return "\n".join([*lines, "", _text(document.subtitle)]) + "\n"


def _first(document: Document) -> list[str]:
    overview = document.overview
    if overview is None:
        figures = "\n".join(f"- {_text(_figure(item))}" for item in document.key_figures)
        return [*map(_text, document.verdict), *only_if(figures, figures)]
    parts = [f"**{_text(overview.headline.text)}**"]
    parts.append(
        "\n".join(
            f"- {_text(row.question)} **{_text(row.answer)}** {_text(row.text)}"
            for row in overview.statuses
        )
    )
    failed = [
        f"- **{_text(item.state)}** {_text(item.cells)}: {_text(item.reason)}"
        for item in overview.failures
    ]
    failed = [
        *failed[:_MAX_FAILURES],
        *only_if(len(failed) > _MAX_FAILURES, f"- and {len(failed) - _MAX_FAILURES} more"),
    ]
    causes = [_cause(cause) for cause in overview.causes]
    for title, items in (("What failed", failed), ("What costs most", causes)):
        if items:
            parts += [f"**{title}**", "\n".join(items)]
    return parts


def _cause(cause: LostTime) -> str:
    cost = in_brackets(_text(cause.cost))
    where = ""
    if cause.cells:
        where = f" {_text(cause.cells)}."
    return f"- **{_text(cause.title)}**{cost}{where} {_text(cause.text)} {_text(cause.advice)}"


def _figure(figure: KeyFigure) -> str:
    return f"{figure.label}: {figure.value}" + in_brackets(figure.note)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _block(block: Block) -> str:
    if isinstance(block, ChartGrid | Details):
        return ""
    if isinstance(block, Paragraph):
        if block.of_charts:
            return ""
        if block.code:
            return f"```\n{block.text.replace('```', '`` `')}\n```"
        return _text(block.text)
    if isinstance(block, Bullets):
        return "\n".join(f"- {_text(item)}" for item in block.items)
    return _table(block)


def _table(whole: Table) -> str:
    table = whole.compact()
    cut = table.truncation_note(MAX_PAPER_ROWS)
    return "\n".join([f"{_text(table.caption)}:", "", *_rows(table, MAX_PAPER_ROWS)]) + (
        f"\n\n{cut}" if cut else ""
    )


def _rows(table: Table, limit: int) -> list[str]:
    heading = "| " + " | ".join(_text(column.title) for column in table.columns) + " |"
    rule = "|" + "|".join(" ---: " if column.numeric else " --- " for column in table.columns) + "|"
    return [
        heading,
        rule,
        *(
            "| " + " | ".join(_text(value.text) for value in row) + " |"
            for row in table.rows[:limit]
        ),
    ]


def _text(text: str) -> str:
    """The text on one line, with what Markdown or HTML would read as markup escaped, and without
    links or mentions: an address and ``@name`` become ones in GitHub's Markdown, though nothing
    marks them."""
    line = strip_control(" ".join(text.split()))
    line = re.sub(r"([\\`*_{}\[\]<>|#~$&])", r"\\\1", line)
    return _LINKED.sub(_NO_LINK, line)


_NO_LINK = "\\g<0>\u2060"
"""A word joiner behind: it is not seen, and ends what would be a link, a mention or a reference."""
_LINKED = re.compile(
    r"\b(?:https?|ftp|mailto|xmpp)(?=:)|\bwww(?=\.)|@(?=[\w-])|\bGH(?=-\d)", re.IGNORECASE
)
