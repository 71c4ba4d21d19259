"""A page of many charts is drawn by two processes, and is the same page."""

from __future__ import annotations

from dataclasses import replace

import psutil
import pytest

from torchscale.report.charts import Chart, ChartSeries
from torchscale.report.document import ChartGrid, Document, Section
from torchscale.report.formats.charts.chart_helper import Alone, ChartHelper, Drawing, chart_helper
from torchscale.report.formats.html import render_html

COUNT = 20


def drawings(count: int = COUNT) -> list[Drawing]:
    chart = Chart(
        name="chart",
        title="Throughput",
        summary="Throughput of a model.",
        x_label="GPUs",
        y_label="samples/s",
        series=(ChartSeries("batch 8", (1.0, 2.0, 4.0), (10.0, 19.0, 36.5)),),
        x_ticks=(1.0, 2.0, 4.0),
    )
    return [
        Drawing(replace(chart, name=f"chart-{number}", title=str(number)), f"c{number}", "normal")
        for number in range(count)
    ]


def test_few_charts_start_no_process() -> None:
    with chart_helper(drawings(3)) as helper:
        assert isinstance(helper, Alone)
        assert helper.drawn(drawings(1)[0]).svg.startswith("<svg")


@pytest.mark.slow
def test_what_the_other_process_draws_is_the_same_to_the_byte() -> None:
    asked, before = drawings(), set(psutil.Process().children())
    with chart_helper(asked) as helper:
        assert isinstance(helper, ChartHelper)
        helper.wait()
        found = [helper.drawn(drawing) for drawing in asked]
        assert helper.count == COUNT
    assert found == [drawing.draw() for drawing in asked]
    assert set(psutil.Process().children()) <= before


@pytest.mark.slow
def test_a_page_is_whole_where_the_other_process_dies() -> None:
    asked = drawings()
    with chart_helper(asked) as helper:
        assert isinstance(helper, ChartHelper)
        helper.close()
        assert [helper.drawn(drawing) for drawing in asked] == [one.draw() for one in asked]


@pytest.mark.slow
def test_a_live_page_draws_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    charts = ChartGrid(tuple(drawing.chart for drawing in drawings()))
    document = Document("Run", "", (), (), (Section("Charts", "charts", (charts,)),))
    page = render_html(document)
    assert page.count("<figure>") == COUNT
    started: list[object] = []
    monkeypatch.setattr(ChartHelper, "__init__", lambda *given: started.append(given))
    assert render_html(document, version="1").count("<figure>") == COUNT
    assert not started
