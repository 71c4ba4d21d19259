"""Markdown: the whole report and the short summary."""

from __future__ import annotations

import re

import pytest

from tests.report.test_build import mixed_run
from tests.report.test_sections import many_cells
from torchscale.analysis.summary.run import summarize
from torchscale.report.build import build_document
from torchscale.report.document import Document
from torchscale.report.formats.markdown import MAX_SUMMARY_LINES, render_markdown, render_summary


def test_a_summary_has_the_answer_and_the_figures_in_few_lines() -> None:
    text = render_summary(build_document(summarize(mixed_run())))
    lines = text.splitlines()
    assert lines[0] == "## Training scaling: experiment"
    assert lines[2] == "**Scales to 2 CPU ranks at 80.7 %, in single launches.**"
    assert "- **oom** tiny ResNet, fp32, batch 16, 2 devices: rank 1: CUDA out of memory" in lines
    assert sum(line.startswith("| tiny-resnet |") for line in lines) == 6
    assert len(lines) <= MAX_SUMMARY_LINES


def test_a_summary_of_very_many_cells_stays_short_and_says_what_it_leaves_out() -> None:
    document = build_document(many_cells())
    lines = render_summary(document).splitlines()
    assert len(lines) <= MAX_SUMMARY_LINES
    rows = sum(line.startswith("| ") for line in lines) - 2
    assert f"{320 - rows} more rows in the report." in lines


def test_the_section_on_scaling_holds_figures() -> None:
    text = render_markdown(build_document(summarize(mixed_run())))
    scaling = text[text.index("## Scaling") : text.index("## Step times")]
    assert "80.7 % at 2 CPU ranks." in scaling
    assert "| tiny-resnet | fp32 | 8 | baseline | 80.7 % |" in scaling


@pytest.mark.parametrize(
    "markup",
    [
        "https://evil.example/x",
        "www.evil.example",
        "mailto:a@evil.example",
        "@somebody",
        "GH-12",
        "#12",
        "<b>bold</b>",
        "&lt;b&gt;",
        "~~gone~~",
        "$x^2$",
        "[a](b)",
        "![a](b)",
        "`code`",
        "a | b",
        "**bold**",
    ],
)
def test_text_of_others_becomes_no_markup(markup: str) -> None:
    """What GitHub would show is the text as it is: every character that is markup stands behind a
    backslash, and what is a link or a mention without any is broken by a word joiner."""
    text = render_markdown(
        Document(title=f"see {markup}", subtitle="", verdict=(), key_figures=(), sections=())
    )
    (line,) = text.strip().splitlines()
    assert line.replace("\\", "").replace("\u2060", "") == f"# see {markup}"
    assert not re.search(r"(?<!\\)[`*_\[\]<>|~$&]", line), line
    assert not re.search(r"https?:|www\.|mailto:|@(?=\w)|GH-\d|(?<![\\])#\d", line), line
