"""Which format a report is written in."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from torchscale.cli.rendering import chosen_formats, write_rendered
from torchscale.config.choices import CompareFormat, ReportFormat
from torchscale.errors import UsageError

HTML, PDF, MARKDOWN = ReportFormat.HTML, ReportFormat.PDF, ReportFormat.MARKDOWN


@pytest.mark.parametrize(
    ("formats", "output", "chosen"),
    [
        (None, None, [HTML]),
        (None, "-", [HTML]),
        (None, "out/foo.PDF", [PDF]),
        (None, "foo.markdown", [MARKDOWN]),
        (None, "foo", [HTML]),
        ([MARKDOWN], "-", [MARKDOWN]),
        ([PDF], "foo.pdf", [PDF]),
        ([PDF], "foo.out", [PDF]),
        ([PDF, HTML, PDF], None, [PDF, HTML]),
    ],
)
def test_the_suffix_decides_where_no_format_is_named(
    formats: list[ReportFormat] | None, output: str | None, chosen: list[ReportFormat]
) -> None:
    assert chosen_formats(formats, HTML, output) == chosen


@pytest.mark.parametrize(
    ("formats", "output", "told"),
    [
        (
            None,
            "out.txt",
            "--output out.txt: .txt names no format; expected one of .html, .htm, .pdf, .md, "
            ".markdown, .csv",
        ),
        (None, "run.2024", ".2024 names no format"),
        ([HTML], "foo.pdf", "--format html contradicts --output foo.pdf"),
        ([HTML, PDF], "foo.pdf", "takes one --format, not 2"),
    ],
)
def test_a_contradiction_is_refused(formats: list[ReportFormat], output: str, told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)):
        chosen_formats(formats, HTML, output)


def test_a_directory_has_no_suffix(tmp_path: Path) -> None:
    (tmp_path / "run.2024").mkdir()
    assert chosen_formats([], HTML, str(tmp_path / "run.2024")) == [HTML]


def test_a_suffix_of_a_format_that_a_command_does_not_write_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no csv here"):
        chosen_formats(None, CompareFormat.TERMINAL, "difference.csv")


ODD = "a\x1b[31mred\x9b1m \u202eback\r\n"


@pytest.mark.parametrize(
    ("terminal", "shown"), [(True, "a\ufffd[31mred\ufffd1m \ufffdback\r\n"), (False, ODD)]
)
def test_a_terminal_is_not_controlled_by_what_is_printed_to_it(
    terminal: bool,
    shown: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pipe or a file gets the bytes as they are."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert write_rendered(ODD.encode(), "cells.csv", tmp_path, "-") is None
    assert capsys.readouterr().out == shown
