"""Results over time on the terminal."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Console

from torchscale.features.compare.history.page import HistoryReport, history_document
from torchscale.report.document import Bullets, Section
from torchscale.report.formats.console import print_document
from torchscale.report.values import only_if, shortened
from torchscale.util.words import capped

_MAX_LEFT_OUT = 12
"""Run folders that were not added; JSON and HTML name all."""


def print_history(report: HistoryReport, console: Console) -> None:
    """The answer, the change points, newest first, with what to type next, and every series."""
    document = history_document(report)
    names = capped(report.left_out, _MAX_LEFT_OUT, "… and {} more left out")
    left_out = Section("", "left out", only_if(names, Bullets(tuple(map(shortened, names)))))
    shown = replace(document, sections=(*document.sections, left_out))
    anchors = ("changes", "series", "left out")
    print_document(shown, console, anchors=anchors, elsewhere="A page has them: --html FILE")
