"""Runs as a notebook shows them."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

from tests.report.test_build import mixed_run
from tests.report.test_sections import many_cells
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.report.formats.notebook import runs_html


def shown(summary: RunSummary, name: str = "demo") -> ElementTree.Element:
    """Well-formed, whatever the texts hold."""
    page = runs_html({name: summary})
    return ElementTree.fromstring(f"<div>{page}</div>")  # noqa: S314 - our own


def test_a_run_is_its_headline_and_a_row_for_each_cell() -> None:
    root = shown(summarize(mixed_run()))
    first = "".join(root[0].itertext())
    assert first == "demo: Scales to 2 CPU ranks at 80.7 %, in single launches."
    headings = [cell.text for cell in root.iter("th")]
    assert headings[:3] == ["model", "batch", "CPU ranks"]
    assert headings[-4:] == ["state", "samples/s", "mean step", "efficiency"]
    rows = [[cell.text for cell in row.iter("td")] for row in root.iter("tr")][1:]
    assert len(rows) == 6
    assert any("80.7 %" in (row[-1] or "") for row in rows)
    assert "129 (128 to 129)" in {row[4] for row in rows}, "both ends of the interval"
    assert {row[3] for row in rows} >= {"ok", "oom"}


def test_many_cells_are_cut_and_the_rest_is_said() -> None:
    root = shown(many_cells())
    assert len(list(root.iter("tr"))) == 21
    assert root[-1].text == "300 cells more in .cells"


def test_names_and_problems_run_nothing() -> None:
    hostile = "<script>alert(1)</script>"
    summary = replace(summarize(mixed_run()), problems=(hostile,))
    root = shown(summary, name=hostile)
    assert root[-1].text == "1 file could not be read; .problems names them"
    assert not list(root.iter("script"))
