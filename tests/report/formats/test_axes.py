"""Ticks, legends and sizes that both chart renderers share."""

from __future__ import annotations

from torchscale.report.document import Chart, ChartSeries
from torchscale.report.formats.axes import byte_ticks, is_small, legend_corner, x_ticks


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
