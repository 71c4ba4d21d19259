"""The report as Markdown, for pull requests and job summaries: text and tables; charts stay in HTML and PDF."""

from __future__ import annotations

import re

from torchscale.report.document import MAX_PAPER_ROWS, Block, Bullets, ChartGrid, Document, KeyFigure, Paragraph, Table


def render_markdown(document: Document) -> str:
    """The report as Markdown, without charts."""
    parts = [f"# {_text(document.title)}", _text(document.subtitle), *map(_text, document.verdict)]
    parts.append("\n".join(f"- {_text(_figure(item))}" for item in document.key_figures))
    for section in document.sections:
        blocks = [text for block in section.blocks if (text := _block(block))]
        if blocks:
            parts += [f"## {_text(section.title)}", *blocks]
    return "\n\n".join(parts) + "\n"


def _figure(figure: KeyFigure) -> str:
    return f"{figure.label}: {figure.value}" + (f" ({figure.note})" if figure.note else "")


def _block(block: Block) -> str:
    if isinstance(block, ChartGrid):
        return ""
    if isinstance(block, Paragraph):
        if block.of_charts:
            return ""
        return f"```\n{block.text.replace('```', '`` `')}\n```" if block.code else _text(block.text)
    if isinstance(block, Bullets):
        return "\n".join(f"- {_text(item)}" for item in block.items)
    return _table(block)


def _table(table: Table) -> str:
    heading = "| " + " | ".join(_text(column.title) for column in table.columns) + " |"
    rule = "|" + "|".join(" ---: " if column.numeric else " --- " for column in table.columns) + "|"
    rows = ["| " + " | ".join(_text(value.text) for value in row) + " |" for row in table.rows[:MAX_PAPER_ROWS]]
    cut = table.truncation_note(MAX_PAPER_ROWS)
    return "\n".join([heading, rule, *rows]) + (f"\n\n{cut}" if cut else "")


def _text(text: str) -> str:
    """On one line, with what Markdown or HTML would read as markup escaped."""
    return re.sub(r"([\\`*_{}\[\]<>|#])", r"\\\1", " ".join(text.split()))
