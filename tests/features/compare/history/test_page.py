"""Results over time as a document, JSON and a table: one number everywhere, and bounded whatever is
in it."""

from __future__ import annotations

import io
from dataclasses import replace

from rich.console import Console

from tests.features.compare.history.test_trends import content, levels, slower_from
from tests.histories import nightly
from torchscale.features.compare.analysis.differences import SideDifference
from torchscale.features.compare.history.export import history_export
from torchscale.features.compare.history.page import HistoryReport, history_document
from torchscale.features.compare.history.tables import print_history
from torchscale.features.compare.history.text import (
    difference_texts,
    format_change_point,
    history_sentence,
    trend_label,
)
from torchscale.features.compare.history.trends import trends
from torchscale.report.charts import Chart
from torchscale.report.document import Bullets
from torchscale.report.table import Table
from torchscale.report.values import Tone

DRIVER = SideDifference("driver", ("550.54", "570.1"))


def changed_history(share: float = 0.9) -> HistoryReport:
    """Fourteen nights, then ten at this share of the speed, with another driver."""
    of_nights = content(slower_from(14, share=share))
    (trend,) = trends(of_nights)
    changes = tuple(replace(change, differences=(DRIVER,)) for change in trend.changes)
    return HistoryReport(
        of_nights.runs, (replace(trend, changes=changes),), 0.02, ("Left out: a folder.",)
    )


def shown(report: HistoryReport) -> str:
    """The terminal's text, wide enough for every row."""
    console = Console(file=io.StringIO(), width=200)
    print_history(report, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_every_format_says_the_same_change() -> None:
    report = changed_history()
    (trend,) = report.trends
    text = format_change_point(trend.changes[0])
    document = history_document(report)
    changes = document.section("changes")
    assert changes is not None
    table = changes.blocks[0]
    assert isinstance(table, Table)
    assert table.rows[0][2].text == text
    assert text in shown(report)
    assert "driver: 550.54 → 570.1" in shown(report)
    assert "Left out: a folder." in shown(report)
    assert history_export(report).trends[0].changes[0].ratio == trend.changes[0].ratio.value


def test_the_first_screen_answers() -> None:
    worse = history_document(changed_history()).overview
    assert worse is not None
    assert (worse.headline.tone, worse.statuses[0].answer) == (Tone.BAD, "1 series")
    better = history_document(changed_history(1.1)).overview
    assert better is not None
    assert (better.headline.tone, better.statuses[0].answer) == (Tone.GOOD, "no")
    assert "No series is worse now. 1 of 1 changed" in better.headline.text


def test_the_table_says_which_runs_do_not_count_and_why() -> None:
    nights = slower_from(14)
    nights[5] = nightly(5, [levels(5, 60)], flags=("throttled",))
    of_nights = content(nights)
    report = HistoryReport(of_nights.runs, tuple(trends(of_nights)), 0.02)
    assert "1 run: throttled" in shown(report)
    nights[7], nights[8] = (nightly(n, [levels(n, 60)], flags=("contended",)) for n in (7, 8))
    of_nights = content(nights)
    report = HistoryReport(of_nights.runs, tuple(trends(of_nights)), 0.02)
    assert "3 runs: 2 contended and 1 throttled" in shown(report)


def test_the_chart_has_runs_levels_and_what_was_left_out() -> None:
    nights = slower_from(14)
    nights[5] = nightly(5, [levels(5, 60)], flags=("throttled",))
    of_nights = content(nights)
    document = history_document(HistoryReport(of_nights.runs, tuple(trends(of_nights)), 0.02))
    (chart,) = document.charts
    assert isinstance(chart, Chart)
    assert [(series.name, len(series.x)) for series in chart.series] == [
        ("runs", 23),
        ("left out", 1),
        ("level", 2),
        ("level", 2),
    ]
    assert chart.series[0].x[-1] == 23.0  # days since the first run
    assert chart.series[2].y[0] > chart.series[3].y[0]
    assert "-10" in chart.summary or "-9.9" in chart.summary


def test_no_runs_and_few_runs() -> None:
    empty = HistoryReport((), (), 0.02)
    assert history_document(empty).verdict == ("Nothing was measured.",)
    assert "Nothing was measured." in shown(empty)
    few = content(slower_from(2, 4))
    report = HistoryReport(few.runs, tuple(trends(few)), 0.02)
    assert history_sentence(report.trends, 0.02).startswith("Too few runs to find a change: 4 runs")
    document = history_document(report)
    assert document.section("changes") is None
    assert document.overview is not None
    assert document.overview.statuses[0].answer == "not known"


def test_a_single_run_is_no_chart_over_time() -> None:
    one = content(slower_from(1, 1))
    assert history_document(HistoryReport(one.runs, tuple(trends(one)), 0.02)).charts == ()


def test_a_time_that_is_none_is_no_error() -> None:
    report = changed_history()
    (trend,) = report.trends
    points = tuple(
        replace(
            point, outcome=point.outcome.model_copy(update={"measured_at": "yesterday\x1b[31m"})
        )
        for point in trend.points
    )
    damaged = replace(report, trends=(replace(trend, points=points, changes=()),))
    assert history_document(damaged).charts
    assert "\x1b" not in shown(damaged)


def test_hundreds_of_changes_stay_readable() -> None:
    report = changed_history()
    many = replace(report, trends=report.trends * 300, left_out=("Left out: x.",) * 300)
    text = shown(many)
    assert len(text.splitlines()) < 250
    assert text.count("… and 240 more\n") == 2, "of changes and of series"
    assert "… and 288 more left out" in text
    method = history_document(many).section("method")
    assert method is not None
    assert isinstance(method.blocks[0], Bullets)

    assert len(history_document(many).charts) == 120


def test_differences_begin_with_what_readers_look_for() -> None:
    (change,) = changed_history().trends[0].changes
    commit = SideDifference("git commit", ("a" * 40, "b" * 40 + "-dirty"))
    others = [SideDifference(f"config key{number}", ("1", "2")) for number in range(20)]
    texts = difference_texts(replace(change, differences=(*others, DRIVER, commit)))
    assert texts[0] == f"git commit: {'a' * 12} → {'b' * 12}-dirty"
    assert texts[1] == "driver: 550.54 → 570.1"
    assert texts[-1] == "and 14 more"


def test_a_label_says_cell_and_metric() -> None:
    (trend,) = changed_history().trends
    assert trend_label(trend) == "tiny ResNet, fp32, batch 8, 1 device: samples/s"
