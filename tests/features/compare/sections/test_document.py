from __future__ import annotations

import io
import json
import re
import statistics

import pytest
from rich.console import Console

from tests.factories import cells
from tests.features.compare.analysis.test_compare import STEADY, result, scaled, side, two_days
from torchscale.config.choices import MatchKey, Metric
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.differences import SideDifference
from torchscale.features.compare.export import comparison_json
from torchscale.features.compare.sections.document import ComparisonReport, comparison_document
from torchscale.features.compare.terminal.comparison import print_comparison
from torchscale.features.compare.text.comparison import comparison_label, format_p, table_names
from torchscale.features.compare.text.result import format_level, measured_at
from torchscale.features.compare.text.verdict import format_session_noise
from torchscale.report.charts import Chart
from torchscale.report.document import Document
from torchscale.report.formats.charts.chart_plotly import chart_figure
from torchscale.report.formats.charts.chart_svg import chart_svg
from torchscale.report.formats.html import render_html
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.table import Table
from torchscale.report.values import Tone
from torchscale.schema.cells.hardware import HardwareCell
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures, ResultCell, ResultSet
from torchscale.schema.state import State
from torchscale.util.units import format_change


def document(*changed: tuple[float, ...], threshold: float = 0.02) -> Document:
    """As many cells, steady in the reference, with these throughputs on the other side."""
    chosen = cells()[: len(changed)]
    reference = side(*(result(cell) for cell in chosen), name="before")
    other = side(
        *(result(cell, rates) for cell, rates in zip(chosen, changed, strict=True)), name="after"
    )
    pair = compare(reference, other, threshold=threshold)
    return comparison_document(
        ComparisonReport((pair,), (), ("before", "after"), threshold=threshold)
    )


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (("before", "after"), ("before", "after")),
        (("/home/me/a/demo", "/home/me/b/demo"), ("…/a/demo", "…/b/demo")),
        (("w-1/results/old", "w-2/results/old"), ("w-1/…/old", "w-2/…/old")),
        (("/x/w-1/results/old", "/x/w-2/results/old"), ("…/w-1/…/old", "…/w-2/…/old")),
        (("demo", "other/long/demo"), ("demo", "…/long/demo")),
        (("a/demo", "b/demo", "b/other"), ("a/demo", "b/demo", "b/other")),
        (("a/b/c/demo (1)", "a/b/c/demo (2)"), ("…/demo (1)", "…/demo (2)")),
    ],
)
def test_tables_name_of_long_paths_what_tells_them_apart(
    names: tuple[str, ...], shown: tuple[str, ...]
) -> None:
    assert table_names(names) == shown


def test_a_table_has_short_names_and_the_title_whole_ones() -> None:
    before, after = ("/a/long/way/from/here/to/a/demo", "/a/long/way/from/here/to/b/demo")
    reference, other = (side(result(cells()[0]), name=name) for name in (before, after))
    found = comparison_document(
        ComparisonReport((compare(reference, other),), (), (before, after), threshold=0.02)
    )
    assert before in found.title and after in found.title
    headings = {
        column.title
        for section in found.sections
        for block in section.blocks
        if isinstance(block, Table)
        for column in block.columns
    }
    assert {"…/a/demo", "…/b/demo", "against …/a/demo"} <= headings
    assert not any(before in heading or after in heading for heading in headings)


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


def test_the_terminal_has_a_table_for_each_metric_that_fits_it() -> None:
    chosen = cells()[:2]
    skipped = ResultCell(cell=chosen[1], state=State.SKIPPED, reason="needs 8 devices")
    ceilings = HardwareCell(
        matmul_sizes=(64,),
        matmul_dtypes=("fp32",),
        seconds=0.1,
        copy_bytes=1,
        disk_bytes=1,
        world_size=1,
        device="cpu",
    )
    machine = ResultCell(
        cell=ceilings,
        state=State.OK,
        launches=(LaunchFigures(values={MetricKey(metric=Metric.COPY, copy_kind="device"): 1e9}),),
    )
    one = side(result(chosen[0]), skipped, machine, name="before")
    other = side(result(chosen[0], tuple(scaled(STEADY, 20))), skipped, machine, name="after")
    console = Console(width=80, record=True, file=io.StringIO(), force_terminal=True)
    print_comparison(ComparisonReport((compare(one, other),), (), ("before", "after")), console)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= 80
    assert re.search(r"samples/s +100 +2,000 +×20\.0 +×20\.0 to ×20\.0", text)
    assert re.search(r"copy bandwidth +1\.00 GB/s", text)
    assert re.search(r"unmeasured +both skipped \(needs 8 devices\)", text)


def test_an_interval_that_tells_nothing_is_cut_at_the_frame() -> None:
    found = document((50.0, 60.0, 100.0), STEADY)
    steady, cut, *_ = chart_of(found).series
    assert (steady.name, steady.marks) == ("95 % interval", False)
    assert max(steady.high) < 1
    assert (cut.name, cut.marks) == ("unclear", False)
    assert (round(cut.low[0], 1), round(cut.high[0], 1)) == (-72.6, 63.4)
    assert "-72.6 to +63.4 %" in render_markdown(found), "the chart has the ends of the table"
    low, high = chart_of(found).y_range or (0.0, 0.0)
    assert cut.low[0] < low < cut.y[0] < high < cut.high[0]
    assert high - low < 70
    assert chart_of(document(STEADY, STEADY)).y_range is None
    assert {
        series.name for series in chart_of(document(STEADY, STEADY)).series if not series.reference
    } == {"95 % interval"}


def test_the_chart_names_its_cells_and_shows_what_is_unclear_or_unknown() -> None:
    noisy = (90.0, 100.0, 112.0)
    found = chart_of(document(noisy, STEADY[:1]))
    assert sorted(found.x_names) == ["tiny ResNet b8 n1", "tiny ResNet b8 n2"]
    unclear, unknown, *_ = found.series
    assert (unclear.name, unclear.marks) == ("unclear", False)
    assert (unknown.name, unknown.marks) == (
        "no interval: too few launches",
        True,
    )
    assert unknown.low == unknown.y == unknown.high
    names = {trace["name"]: trace for trace in chart_figure(found)["data"]}  # type: ignore[attr-defined]
    assert names["no interval: too few launches"]["marker"]["symbol"] == "x-thin"
    assert chart_figure(found)["layout"]["xaxis"]["ticktext"] == found.x_names  # type: ignore[index]
    assert "tiny ResNet b8 n1" in chart_svg(found, "c")


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (0.0497, "0.0497"),
        (0.04996, "0.04996"),
        (0.0499999, "0.0499999"),
        (0.05, "0.050"),
        (0.0503, "0.050"),
        (0.012, "0.012"),
        (0.00099, "< 0.001"),
        (1.0, "1.000"),
    ],
)
def test_p_is_shown_on_its_side_of_the_level(p: float, text: str) -> None:
    assert format_p(p) == text


def test_a_tile_is_a_number_only_where_there_is_a_verdict() -> None:
    sure = compare(REFERENCE, side(result(cells()[0], scaled(STEADY, 1.1)), name="sure"))
    found = comparison_document(
        ComparisonReport((sure, *CONTENDED.pairs), (), ("before", "sure", "after"))
    )
    assert found.overview is None
    assert {figure.label: figure.value for figure in found.key_figures} == {
        "samples/s, sure": "+10.0 %",
        "worse or lost, sure": "0 cells",
        "score, sure": "110.0",
        "samples/s, after": "unclear (contended)",
        "worse or lost, after": "unclear",
    }
    assert found.verdict[1].startswith("Unclear, because after was contended")
    assert "Score: unclear, as the change of speed is" in printed(CONTENDED)
    assert "All 3 launches of after were contended" in printed(CONTENDED)


REFERENCE = side(result(cells()[0]), name="before")
CONTENDED = ComparisonReport(
    (
        compare(
            REFERENCE,
            side(result(cells()[0], scaled(STEADY, 0.6), flags=("contended",)), name="after"),
        ),
    ),
    (),
    ("before", "after"),
)


def contended() -> Document:
    return comparison_document(CONTENDED)


def printed(comparison: ComparisonReport, width: int = 200) -> str:
    console = Console(width=width, record=True, file=io.StringIO())
    print_comparison(comparison, console)
    return console.export_text()


def test_the_terminal_has_more_rows_than_a_comment_on_a_pull_request() -> None:
    chosen = cells(batch_sizes=list(range(1, 21)))[:20]
    sides = (side(*map(result, chosen), name=name) for name in ("before", "after"))
    comparison = ComparisonReport((compare(*sides),), (), ("before", "after"))
    text = printed(comparison)
    assert len(re.findall(r"^tiny ResNet", text, re.MULTILINE)) == 20
    assert "more row" not in text
    assert "And 5 more rows" in render_markdown(comparison_document(comparison, brief=True))


def test_the_terminal_names_warnings_and_explains_brackets_where_there_are_some() -> None:
    text = printed(CONTENDED)
    assert re.search(r"^cell .* verdict +warnings$", text, re.MULTILINE)
    assert re.search(r"^tiny ResNet.*unclear \(contended\) +contended", text, re.MULTILINE)
    assert "Warnings are of one side" in text
    assert ("[In brackets]" in text) == bool(re.search(r"^tiny ResNet.*\[.*\]", text, re.MULTILINE))
    quiet = ComparisonReport(
        (compare(side(result(cells()[0])), side(result(cells()[0]))),), (), ("before", "after")
    )
    assert "[In brackets]" not in printed(quiet)
    assert "Warnings are of one side" not in printed(quiet)


def test_what_needs_no_remark_has_no_heading_of_remarks() -> None:
    single = side(ResultCell(cell=cells()[0], state=State.SKIPPED, reason="needs 8 devices"))
    comparison = ComparisonReport((compare(single, single),), (), ("before", "after"))
    assert "Remarks" not in printed(comparison)


def test_one_figure_is_one_text_in_every_format() -> None:
    """Levels, change, interval and verdict of a cell: terminal, HTML, Markdown, and JSON when
    formatted alike."""
    cell = cells()[0]
    rates = (97.13, 98.55, 96.42)
    pair = compare(side(result(cell), name="before"), side(result(cell, rates), name="after"))
    comparison = ComparisonReport((pair,), (), ("before", "after"))
    (change,) = [change for _, change in pair.decided_by(())]
    exported = json.loads(comparison_json(comparison))["pairs"][0]["cells"][0]["changes"][0]
    low, high = exported["interval"]
    texts = [
        format_level(Metric.THROUGHPUT, exported["after"]),
        format_change(exported["ratio"] - 1),
        f"{format_change(low - 1).removesuffix(' %')} to {format_change(high - 1)}",
        exported["verdict"],
    ]
    assert exported["after"] == pytest.approx(statistics.geometric_mean(rates))
    row = next(line for line in printed(comparison).splitlines() if line.startswith("tiny ResNet"))
    brief = render_markdown(comparison_document(comparison, brief=True))
    markdown = next(line for line in brief.splitlines() if line.startswith("| tiny ResNet"))
    (table,) = [
        block
        for section in comparison_document(comparison).sections
        for block in section.blocks
        if isinstance(block, Table) and block.caption == "after against before"
    ]
    document_row = [value.text for value in table.rows[0]]
    for text in texts:
        assert f" {text} " in f"{row} "
        assert f"| {text} |" in markdown
        assert text in document_row
    (overall, *_) = pair.overall
    sentence = comparison_document(comparison).verdict[0]
    assert f"{texts[1]} over 1 cell (95 % interval {texts[2]})" in sentence
    assert sentence.split(". ")[0] in printed(comparison).replace("\n", " ")
    assert overall.ratio == change.ratio


def test_the_markdown_of_many_cells_is_short_and_begins_with_regressions() -> None:
    plan = cells(batch_sizes=list(range(1, 61)), gpu_counts=[1])
    rates = [scaled(STEADY, 0.9 if number == 59 else 1.0) for number in range(60)]
    other = side(
        *(result(cell, rate) for cell, rate in zip(plan, rates, strict=True)), name="after"
    )
    pair = compare(side(*map(result, plan), name="before"), other)
    differing = tuple(SideDifference(f"config key{number}", ("1", "2")) for number in range(40))
    report = ComparisonReport((pair,), differing, ("before", "after"))
    text = render_markdown(comparison_document(report, brief=True))
    assert len(text.splitlines()) <= 60
    assert (
        "| tiny ResNet, fp32, batch 60, 1 device |"
        in [line for line in text.splitlines() if "|" in line][2]
    )
    assert "And 45 more rows; HTML and JSON have all." in text
    assert "And 28 more differences" in text


def test_equal_days_get_times_and_others_do_not() -> None:
    cell = cells()[0]

    def at(*times: str) -> ResultSet:
        return side(result(cell, started_at=times), name=times[0])

    monday = at(
        "2026-01-05T08:00:10+00:00", "2026-01-05T08:05:00+00:00", "2026-01-05T08:20:59+00:00"
    )
    later = at(*["2026-01-05T09:00:10+00:00"] * 3)
    other = at(*["2026-01-06T09:00:10+00:00"] * 3)
    assert measured_at([monday, later]) == ["2026-01-05 08:00 to 08:20 UTC", "2026-01-05 09:00 UTC"]
    assert measured_at([monday, other]) == ["2026-01-05", "2026-01-06"]
    assert measured_at([side(), side()]) == ["", ""]


def test_what_intervals_say_of_sessions_is_stated() -> None:
    cell = cells()[0]
    once = compare(side(result(cell)), side(result(cell)))
    days = two_days(cell, (100.0, 100.2, 99.8, 110.0, 110.2, 109.8))
    several = compare(days, side(result(cell)))
    stated = [
        format_session_noise([change for _, change in pair.decided_by(())])
        for pair in (once, several)
    ]
    assert (
        "the noise between sessions (time of day, temperature, other jobs) is unknown: a side was"
        in stated[0]
    )
    assert stated[1] == (
        "Intervals cover the noise between launches and between sessions. Where it is estimated, "
        "levels of sessions spread by up to 6.7 %."
    )


def test_the_footer_does_not_call_computed_figures_measured() -> None:
    page = render_html(contended())
    assert "Every value shown was measured" not in page
    assert "changes, intervals, p-values and scores are computed from them" in page


def test_cells_that_differ_are_named_by_what_both_are_and_what_differs_comes_first() -> None:
    (_, two), (one, _) = cells(batch_sizes=[8]), cells(batch_sizes=[16])
    keys = [MatchKey.MODEL, MatchKey.GLOBAL_BATCH]
    pair = compare(side(result(two), name="a"), side(result(one), name="b"), match=keys)
    assert (
        comparison_label(pair.cells[0])
        == "tiny ResNet, fp32, batch 8 | batch 16, 2 devices | 1 device"
    )
    report = ComparisonReport(
        (pair,), (SideDifference("devices of cells", ("2", "1")),), ("a", "b"), matched_by_name=True
    )
    assert [section.anchor for section in comparison_document(report).sections][:2] == [
        "differences",
        "overall",
    ]
    text = printed(report)
    assert re.search(
        r"\nDifferences between the sides\n.*\ndevices of cells +2 +1\n", text, re.DOTALL
    )
    assert text.index("Differences between the sides") < text.index(
        "b against a", 40 + text.index("\n\n")
    )
    assert "tiny ResNet, fp32, batch 8 | batch 16, 2 devices | 1 device" in text


def test_the_first_screen_answers_what_readers_of_a_comparison_ask() -> None:
    slow, cut = tuple(scaled(STEADY, 0.9)), (10.0, 100.0, 1000.0)
    overview = document(slow, cut).overview
    assert overview is not None
    assert overview.headline.tone is Tone.BAD
    assert overview.headline.text.startswith(
        "1 cell worse or lost. Unclear whether after differs from before"
    )
    assert [(row.question, row.answer) for row in overview.statuses] == [
        ("Cells changed?", "1 worse"),
        ("Measured?", "as much as the reference"),
        ("Same conditions?", "yes"),
        ("Certain?", "in part"),
    ]
    assert overview.chart is not None
    busy = contended().overview
    assert busy is not None
    assert busy.headline.tone is Tone.CAUTION
    assert [row.answer for row in busy.statuses] == [
        "unclear",
        "as much as the reference",
        "differ",
        "no",
    ]


def test_the_first_screen_names_what_was_lost_or_not_measured() -> None:
    first, second = cells()
    reference = side(result(first), result(second), name="before")
    for after, answer in ((State.CRASHED, "1 lost"), (State.SKIPPED, "less than the reference")):
        pair = compare(reference, side(result(first), result(second, state=after), name="after"))
        overview = comparison_document(ComparisonReport((pair,), (), ("before", "after"))).overview
        assert overview is not None
        (measured,) = [row for row in overview.statuses if row.question == "Measured?"]
        assert (measured.answer, measured.tone) == (answer, Tone.BAD)
        assert "tiny ResNet, fp32, batch 8, 2 devices" in measured.text
    none = compare(side(result(first), name="before"), side(result(second), name="after"))
    empty = comparison_document(ComparisonReport((none,), (), ("before", "after"))).overview
    assert empty is not None
    assert empty.headline.text.startswith(
        "No cell of one side is in the other: before holds 1 training cell"
    )
    assert [row.question for row in empty.statuses] == [
        "Cells changed?",
        "Measured?",
        "Same conditions?",
    ]
