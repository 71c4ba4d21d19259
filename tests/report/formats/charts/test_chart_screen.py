"""Charts of the page: small, in its colours, with the values that a reader points at."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.report.test_build import HOSTILE
from tests.report.test_sections import many_cells
from torchscale.report.build import build_document
from torchscale.report.charts import (
    AnyChart,
    BarLayer,
    Chart,
    ChartSeries,
    StackedChart,
    TimelineChart,
    TimeSpan,
)
from torchscale.report.formats.charts.chart_screen import screen_chart, screen_width
from torchscale.report.formats.html import render_html

LINE = Chart(
    name="line",
    title="a title",
    summary="a summary",
    x_label="devices",
    y_label="samples/s",
    series=(
        ChartSeries(
            "batch 8",
            (1.0, 2.0, 4.0),
            (10.0, 19.0, 33.3333333),
            (9.0, 18.0, 30.0),
            (11.0, 20.0, 35.0),
        ),
        ChartSeries("ideal", (1.0, 4.0), (10.0, 40.0), reference=True),
    ),
    x_ticks=(1.0, 2.0, 4.0),
)


def values_of(chart: AnyChart) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(screen_chart(chart, "c", screen_width(chart)).values)
    return content


@pytest.mark.slow
def test_a_page_of_hundreds_of_cells_is_far_below_two_megabytes() -> None:
    document = build_document(many_cells())
    assert len(document.charts) > 40
    assert len(render_html(document).encode()) < 1_200_000


def test_points_keep_values_and_intervals() -> None:
    measured, ideal = values_of(LINE)["points"]
    assert measured["name"] == "batch 8"
    assert (measured["x"], measured["y"]) == ([1.0, 2.0, 4.0], [10.0, 19.0, 33.333])
    assert (measured["low"], measured["high"]) == ([9.0, 18.0, 30.0], [11.0, 20.0, 35.0])
    assert "low" not in ideal


@pytest.mark.parametrize("log", [False, True])
def test_a_point_lies_where_its_values_say(log: bool) -> None:
    """What the page's script computes from the frame, against the marks that are drawn."""
    chart = replace(LINE, log_y=log, series=LINE.series[:1], x_ticks=(1.0, 2.0, 4.0))
    drawn = screen_chart(chart, "c", "normal")
    content = json.loads(drawn.values)
    left, right, bottom, _ = content["frame"]
    found = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn.svg)
    assert found is not None
    width, height = map(float, found.groups())
    uses = re.findall(r'<use xlink:href="[^"]*" x="([\d.]+)" y="([\d.]+)" style="fill', drawn.svg)[
        :3
    ]
    low, high = content["x"]
    for (x, y), value in zip(uses, (1.0, 2.0, 4.0), strict=True):
        share = (value - low) / (high - low)
        assert float(x) / width == pytest.approx(left + (right - left) * share, abs=0.002)
        assert 0 < float(y) / height < bottom


def test_the_drawing_takes_the_pages_colours_and_has_no_title_of_its_own() -> None:
    svg = screen_chart(LINE, "c", "normal").svg
    assert "#000000" not in svg
    assert "#ffffff" not in svg
    assert "var(--line)" in svg
    assert "a title" not in svg
    assert "<style" not in svg
    assert "font-family" not in svg
    assert "#0072b2" in svg


def test_numbers_and_names_of_an_axis_are_kept_whole() -> None:
    series = ChartSeries("runs", (1.0, 2.0), (0.0015, 0.0012))
    names = ("tiny ResNet b8 n1", "a #000000 name, 1.23456")
    small = replace(LINE, series=(series,), x_ticks=(1.0, 2.0), x_names=names)
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", screen_chart(small, "c", "normal").svg)
    assert set(names) <= set(texts), "they are rotated, and their font stands last in their style"
    assert "0.0015" in texts


def test_bars_are_boxes_with_their_values() -> None:
    chart = StackedChart(
        "bars",
        "t",
        "s",
        "ms",
        "",
        ("one", "two"),
        (BarLayer("a", (1.0, 2.0)), BarLayer("b", (3.0, -1.0), 1)),
        horizontal=True,
    )
    first, second = values_of(chart)["boxes"]
    assert (first["left"], first["right"]) == ([0.0, 0.0], [1.0, 2.0])
    assert (second["left"], second["right"]) == ([1.0, 0.0], [4.0, -1.0])
    assert second["texts"] == ["3, one", "-1, two"]
    assert second["low"] == [-0.5, 0.5]


def test_a_kind_of_a_timeline_is_one_path_however_many_bars_it_has() -> None:
    stretches = tuple(TimeSpan(place % 2, place * 1.0, place + 0.5) for place in range(400))
    chart = TimelineChart("time", "t", "s", "ms", ("rank 0", "rank 1"), (("compute", stretches),))
    drawn = screen_chart(chart, "c", "wide")
    assert drawn.svg.count("<path") < 40
    assert len(drawn.svg) < 25_000
    assert len(json.loads(drawn.values)["boxes"][0]["left"]) == 400


def test_text_of_others_stays_text() -> None:
    chart = replace(LINE, series=(replace(LINE.series[0], name=HOSTILE), LINE.series[1]))
    drawn = screen_chart(chart, "c", "normal")
    assert "<script" not in drawn.svg
    assert "<img" not in drawn.svg
    assert "<" not in drawn.values


def test_a_value_without_a_number_is_null() -> None:
    chart = replace(LINE, series=(ChartSeries("a", (1.0, 2.0), (1.0, float("inf"))),))
    assert values_of(chart)["points"][0]["y"] == [1.0, None]


def test_values_that_are_nearly_equal_lie_below_the_frame() -> None:
    chart = replace(LINE, series=(ChartSeries("a", (1.0, 2.0, 4.0), (100.0, 99.9, 99.8)),))
    assert values_of(chart)["y"] == [0.0, pytest.approx(105.0)]
