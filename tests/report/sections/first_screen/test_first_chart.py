"""The chart of the first screen."""

from __future__ import annotations

from tests.factories import run
from tests.report.sections.first_screen.test_headline import STEADY, launched
from tests.report.test_sections import many_cells
from torchscale.analysis.summary.run import summarize
from torchscale.report.charts import Chart, StackedChart
from torchscale.report.sections.first_screen.first_chart import first_chart, shows_every_series


def test_a_line_for_each_of_a_few_series_with_its_interval_under_a_named_ideal() -> None:
    summary = launched({1: STEADY, 2: [1.05 * value for value in STEADY]}, batch_sizes=[8, 16])
    chart = first_chart(summary)
    assert isinstance(chart, Chart)
    assert [series.name for series in chart.series] == ["batch 8", "batch 16", "ideal"]
    first = chart.series[0]
    assert first.x == (1.0, 2.0)
    assert first.low[1] < first.y[1] < first.high[1]
    assert chart.x_range[0] > 0.8, "the axis begins at the smallest count"
    assert shows_every_series(summary)


def test_very_many_series_become_their_median() -> None:
    summary = many_cells()
    chart = first_chart(summary)
    assert isinstance(chart, Chart)
    assert [series.name for series in chart.series] == [
        "median of all series, with the middle 80 %",
        "ideal",
    ]
    assert not shows_every_series(summary)


def test_one_count_shows_the_phases_of_a_step() -> None:
    chart = first_chart(summarize(run(gpu_counts=[1])))
    assert isinstance(chart, StackedChart)
    assert chart.horizontal
    assert chart.bars == ("tiny ResNet, batch 8",)
    assert [(part.name, round(part.values[0])) for part in chart.parts] == [
        ("data wait", 10),
        ("forward", 30),
        ("backward", 40),
        ("optimizer", 20),
    ]


def test_nothing_measured_has_no_chart() -> None:
    assert first_chart(summarize(run({}))) is None
