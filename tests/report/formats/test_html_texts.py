"""Texts of others on a page: escaped, and without what controls a terminal or turns text around."""

from __future__ import annotations

import json
import re

import pytest

from torchscale.features.watch.document import watched_document
from torchscale.report.document import Bullets, Details, Document, KeyFigure, Paragraph, Section
from torchscale.report.formats.html import render_html
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue
from torchscale.schema.watch.report import WatchReport

HOSTILE = (
    "\x1b[31m",
    "\x9b31m",
    "\u202e",
    "\u2066",
    "\u061c",
    "\x00",
    "\x7f",
    "<script>x</script>",
)


def everywhere(text: str) -> Document:
    """A document with ``text`` in every place that takes one."""
    rows = tuple((TableValue(text), TableValue(text)) for _ in range(2000))
    columns = (Column(text, False), Column(text, True))
    blocks = (
        Paragraph(text),
        Paragraph(text, code=True),
        Bullets((text,)),
        Table(text, columns, rows[:2]),
        Table(text, columns, rows),
        Details(text, (Paragraph(text),)),
    )
    return Document(
        title=text,
        subtitle=text,
        verdict=(text,),
        key_figures=(KeyFigure(text, text, text),),
        sections=(Section(text, "one", blocks, key=text),),
    )


def shown(page: str) -> str:
    """The page without its own style and scripts."""
    return re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)


@pytest.mark.parametrize("version", [None, "1"], ids=["file", "live"])
@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
def test_no_text_controls_a_page(text: str, version: str | None) -> None:
    page = shown(render_html(everywhere(f"a{text}b"), version))
    assert page.count("a") > 2000, "else the test would show nothing"
    assert text not in page
    assert json.dumps(text)[1:-1] not in page, "nor in the rows that a script shows"


def test_the_start_of_a_watched_job_is_a_text_as_any() -> None:
    report = WatchReport(tool_version="1", command=("train.py",), started_at="", seconds=1.0)
    told = report.model_copy(update={"started_at": "<b>now</b>\x9b\u202e"})
    page = shown(render_html(watched_document(told), "1"))
    assert "since &lt;b&gt;now&lt;/b&gt;\ufffd\ufffd" in page
