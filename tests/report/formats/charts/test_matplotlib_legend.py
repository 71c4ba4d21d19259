"""Legends and names beside the axes of matplotlib."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.report.formats.charts.test_axes import chart
from torchscale.report.charts import (
    AnyChart,
    BarLayer,
    ChartSeries,
    StackedChart,
    TimelineChart,
    TimeSpan,
)
from torchscale.report.formats.charts.chart_plotly import chart_figure
from torchscale.report.formats.charts.chart_svg import chart_svg, draw_chart

LONG = "a_training_script_of_a_very_long_name_for_an_experiment.py --lr 0.1"


@pytest.mark.parametrize("inches", [2.4, 3.8, 9.5])
def test_long_names_leave_room_for_the_data_and_stay_in_the_drawing(inches: float) -> None:
    """Bars, rows, lines and named points, whose names a user chose."""
    name = LONG * 3
    layers = (BarLayer(name, (1.0,), 0), BarLayer(f"{name} 2", (2.0,), 1))
    lines = (ChartSeries(name, (1.0, 2.0), (1.0, 2.0)), ChartSeries("b", (1.0, 2.0), (2.0, 1.0)))
    kinds = tuple((kind, (TimeSpan(0, 0.0, 1.0),)) for kind in (name, "b"))
    charts: list[AnyChart] = [
        StackedChart("c", "c", "c", "x", "", (name,), layers, horizontal=True),
        StackedChart("c", "c", "c", "x", "y", ("1",), layers),
        TimelineChart("c", "c", "c", "x", (name,), kinds),
        chart(series=lines),
        chart(series=lines, x_ticks=(1.0, 2.0), x_names=("a", "b")),
    ]
    for one in charts:
        svg, plot = draw_chart(one, (inches, 2.0), "c")
        assert plot.right - plot.left > 0.25 * plot.width, one
        shown = re.findall(
            r'<text style="font-size: ([\d.]+)px[^"]*" x="([\d.]+)"[^>]*>([^<]+)<', svg
        )
        ends = [float(x) + 0.5 * float(size) * len(text) for size, x, text in shown if "…" in text]
        assert ends, "the names are there"
        assert all(end <= plot.width for end in ends), (ends, plot.width)
        figure: Any = chart_figure(one)
        assert all(len(trace["name"]) <= 40 for trace in figure["data"])
        assert name in str(figure["data"]), "whole where it is pointed at"


def test_a_legend_names_what_was_measured_first() -> None:
    lines = [
        ChartSeries("batch 4", (1.0, 2.0), (1.0, 2.0)),
        ChartSeries("batch 16", (1.0, 2.0), (2.0, 3.0)),
    ]
    ideal = ChartSeries("ideal", (1.0, 2.0), (1.0, 2.0), reference=True, follows=True)
    svg = chart_svg(chart(series=(lines[0], ideal, lines[1])), "c")
    assert svg.index(">batch 4<") < svg.index(">batch 16<") < svg.index(">ideal<")


@pytest.mark.parametrize(("inches", "rows"), [(2.5, 2), (7.5, 1)])
def test_entries_of_a_legend_above_the_bars_are_read_by_rows(inches: float, rows: int) -> None:
    names = ("data wait", "forward", "backward", "optimizer")
    parts = tuple(BarLayer(name, (1.0,), style) for style, name in enumerate(names))
    bars = StackedChart("c", "c", "c", "x", "", ("cell",), parts, horizontal=True)
    svg, _ = draw_chart(bars, (inches, 2.0), "c")
    found = re.findall(rf'<text [^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>({"|".join(names)})<', svg)
    assert [
        name for _, _, name in sorted(found, key=lambda entry: (float(entry[1]), float(entry[0])))
    ] == list(names)
    assert len({y for _, y, _ in found}) == rows
