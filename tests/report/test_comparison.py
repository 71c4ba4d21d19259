from __future__ import annotations

from tests.analysis.test_comparison import STEADY, result, scaled, side
from tests.factories import cells
from torchscale.analysis.comparison import compare
from torchscale.report.comparison import Comparison, comparison_document
from torchscale.report.document import Chart, Document
from torchscale.report.html import render_html
from torchscale.report.markdown import render_markdown

NOTE = "are not drawn; the table holds them"


def document(*changed: tuple[float, ...], threshold: float = 0.02) -> Document:
    """As many cells, steady in the reference, with these throughputs on the other side."""
    chosen = cells()[: len(changed)]
    reference = side(*(result(cell) for cell in chosen), name="before")
    other = side(*(result(cell, rates) for cell, rates in zip(chosen, changed, strict=True)), name="after")
    pair = compare(reference, other, threshold=threshold)
    return comparison_document(Comparison((pair,), (), ("before", "after"), threshold=threshold))


def chart_of(found: Document) -> Chart:
    (chart,) = found.charts
    assert isinstance(chart, Chart)
    return chart


def test_changes_are_drawn_from_lowest_to_highest_between_the_thresholds() -> None:
    faster, slower = tuple(scaled(STEADY, 1.1)), tuple(scaled(STEADY, 0.95))
    changes, *thresholds = chart_of(document(faster, slower, threshold=0.005)).series
    assert [round(change, 1) for change in changes.y] == [-5.0, 10.0]
    assert changes.low[0] < changes.y[0]
    assert [series.name for series in thresholds] == ["threshold -0.5 %", "threshold +0.5 %"]


def test_an_interval_that_tells_nothing_does_not_squeeze_the_others() -> None:
    wild = (10.0, 100.0, 1000.0)
    found = document(wild, STEADY)
    changes = chart_of(found).series[0]
    assert max(changes.high) < 1
    assert NOTE in render_html(found)
    assert NOTE not in render_markdown(found)
    assert "unclear" in render_markdown(found)
    assert NOTE not in render_html(document(STEADY, STEADY))
