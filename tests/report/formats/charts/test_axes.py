"""Ticks, legends and sizes that both chart renderers share."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest

from torchscale.report.charts import (
    Chart,
    ChartSeries,
)
from torchscale.report.formats.charts.axes import (
    CutEnd,
    byte_ticks,
    cut_ends,
    is_small,
    legend_corner,
    side_by_side,
    x_ticks,
    y_frame,
)
from torchscale.report.formats.charts.chart_plotly import chart_figure
from torchscale.report.formats.charts.chart_svg import chart_svg


def chart(*lines: tuple[float, ...], **changes: object) -> Chart:
    series = tuple(
        ChartSeries(str(number), tuple(float(x) for x in range(1, len(line) + 1)), line)
        for number, line in enumerate(lines)
    )
    defaults: dict[str, object] = {
        "name": "c",
        "title": "c",
        "summary": "c",
        "x_label": "x",
        "y_label": "y",
        "series": series,
    }
    return Chart(**{**defaults, **changes})  # type: ignore[arg-type]


def test_bytes_are_ticked_at_powers_of_two_and_written_short() -> None:
    assert byte_ticks([1024, 2**20]) == tuple(2.0**power for power in (10, 12, 14, 16, 18, 20))
    assert byte_ticks([]) == ()
    sizes = ChartSeries("all_reduce", (1024.0, 2.0**26), (1.0, 2.0))
    _, texts = x_ticks(chart(series=(sizes,), byte_sizes=True, log_x=True))
    assert texts[0] == "1 KiB"
    assert texts[-1].endswith("MiB")


def test_the_legend_goes_where_it_covers_least() -> None:
    assert legend_corner(chart((100.0, 90.0, 60.0))) == ("bottom", "left")
    assert legend_corner(chart((10.0, 20.0, 30.0))) == ("bottom", "right")
    assert legend_corner(chart((1.0, 2.0, 30.0))) == ("top", "left")
    assert legend_corner(chart(())) == ("top", "left")


def test_few_points_need_less_room_unless_the_chart_stands_alone() -> None:
    two = chart((1.0, 2.0), x_ticks=(1.0, 2.0))
    assert is_small(two)
    assert not is_small(chart((1.0, 2.0), x_ticks=(1.0, 2.0), prominent=True))
    assert not is_small(chart((1.0, 2.0, 3.0, 4.0), x_ticks=(1.0, 2.0, 3.0, 4.0)))


def with_whisker(high: float, **changes: object) -> Chart:
    return chart(
        series=(ChartSeries("a", (1.0, 2.0), (100.0, 76.0), (100.0, 26.0), (100.0, high)),),
        **changes,
    )


def test_a_whisker_far_above_the_points_is_cut_and_a_narrow_one_is_not() -> None:
    assert y_frame(with_whisker(149.0)) is None
    assert y_frame(with_whisker(218.0)) == (0.0, 150.0)
    assert cut_ends(with_whisker(218.0).series[0], (0.0, 150.0)) == [
        CutEnd(2.0, 150.0, (26.0, 218.0), upwards=True)
    ]
    assert y_frame(with_whisker(218.0, y_from_zero=False)) is None, (
        "such an axis begins where its whiskers do"
    )


def test_lines_with_whiskers_at_one_x_are_drawn_side_by_side() -> None:
    line = ChartSeries("a", (1.0, 2.0), (100.0, 76.0), (100.0, 26.0), (100.0, 110.0))
    ideal = ChartSeries("ideal", (1.0, 2.0), (100.0, 100.0), reference=True)
    apart = side_by_side(chart(series=(line, line, ideal), x_ticks=(1.0, 2.0)))
    assert apart.series[0].x[1] < 2.0 < apart.series[1].x[1]
    assert apart.series[0].x[1] + apart.series[1].x[1] == 4.0
    assert apart.series[2] == ideal
    alone = chart(series=(line, ideal), x_ticks=(1.0, 2.0))
    assert side_by_side(alone) == alone
    many = side_by_side(chart(series=(line,) * 30, x_ticks=(1.0, 2.0, 64.0)))
    assert max(series.x[0] for series in many.series) < min(
        series.x[1] for series in many.series
    ), "counts stay apart"


def test_the_legend_keeps_off_whiskers() -> None:
    line = ChartSeries("a", (1.0, 2.0), (90.0, 10.0), (2.0, 10.0), (90.0, 10.0))
    assert legend_corner(chart(series=(line,))) == ("top", "right")
    assert legend_corner(chart(series=(ChartSeries("a", line.x, line.y),))) == ("bottom", "left")


@pytest.mark.parametrize("high", [218.0, math.inf, 1e300])
def test_both_renderers_draw_a_cut_whisker_to_the_frame_with_an_arrow(high: float) -> None:
    figure: Any = chart_figure(with_whisker(high))
    json.dumps(figure, allow_nan=False)
    line, arrow = figure["data"]
    assert figure["layout"]["yaxis"]["range"] == [0, 150.0]
    assert line["error_y"]["array"][1] + 76 > 150, "to the frame"
    assert line["error_y"]["arrayminus"][1] == 50.0, "its other end, where it is"
    assert (arrow["x"], arrow["y"], arrow["marker"]["symbol"]) == ([2.0], [150.0], ["triangle-up"])
    svg = chart_svg(with_whisker(high), "a")
    frame = re.search(r'<rect x="([\d.]+)" y="([\d.]+)"', svg[svg.index("<clipPath") :])
    assert frame is not None
    markers = re.findall(r'<use xlink:href="[^"]+" x="([\d.]+)" y="([\d.]+)"', svg)
    assert [float(x) > float(frame[1]) for x, y in markers if y == frame[2] and x != frame[1]] == [
        True
    ], "one arrow at the frame"


def test_both_renderers_cut_a_whisker_at_both_ends_of_a_range_and_tell_where_it_ends() -> None:
    """An interval need not hold its point either: quiet launches may lie all above their mean."""
    series = ChartSeries("a", (1.0, 2.0), (-43.0, 5.0), (-78.0, 7.0), (49.0, 12.0))
    ranged = chart(series=(series,), y_from_zero=False, y_range=(-60.0, 20.0))
    figure: Any = chart_figure(ranged)
    line, arrows = figure["data"]
    assert figure["layout"]["yaxis"]["range"] == [-60.0, 20.0]
    assert -43.0 - line["error_y"]["arrayminus"][0] < -60.0
    assert -43.0 + line["error_y"]["array"][0] > 20.0
    assert line["error_y"]["arrayminus"][1] == -2.0, "above its point"
    assert line["customdata"][0] == "-43 (-78 to 49)"
    assert (arrows["x"], arrows["y"]) == ([1.0, 1.0], [-60.0, 20.0])
    assert arrows["marker"]["symbol"] == ["triangle-down", "triangle-up"]
    assert arrows["customdata"] == ["-78 to 49"] * 2
    svg = chart_svg(ranged, "a")
    frame = re.search(
        r'<rect x="([\d.]+)" y="([\d.]+)" width="[\d.]+" height="([\d.]+)"',
        svg[svg.index("<clipPath") :],
    )
    assert frame is not None
    left, top, height = map(float, frame.groups())
    markers = re.findall(r'<use xlink:href="[^"]+" x="([\d.]+)" y="([\d.]+)"', svg)
    at_frame = [round(float(y) - top) for x, y in markers if float(x) > left + 1 and y != str(left)]
    assert {0, round(height)} <= set(at_frame), "an arrow at the top and one at the bottom"


def test_lines_of_reference_decide_on_the_legend_only_where_measured_ones_do_not() -> None:
    busy = ChartSeries("busy", (0.0, 4.0), (100.0, 100.0))
    ends = (
        ChartSeries(name, (x, x), (0.0, 100.0), reference=True)
        for name, x in (("began", 0.5), ("ended", 3.5))
    )
    assert legend_corner(chart(series=(busy, *ends)))[0] == "bottom"
