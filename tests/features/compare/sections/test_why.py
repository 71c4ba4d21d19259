from __future__ import annotations

import io

import pytest
from rich.console import Console

from tests.explanations import explained, measured, side
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.analysis.explanation import ExplainedPair, explain
from torchscale.features.compare.sections.why import waterfall, why_section
from torchscale.report.document import Bullets, ChartGrid, Paragraph
from torchscale.report.formats.charts.chart_plotly import chart_figure
from torchscale.report.formats.charts.chart_screen import screen_chart
from torchscale.report.formats.charts.chart_svg import chart_svg
from torchscale.report.formats.console import print_blocks
from torchscale.report.table import Table
from torchscale.schema.run.step_parts import OutsidePart, StepPart

NAMES = ("before", "after")


def slower() -> ExplainedPair:
    """A forward pass that takes 5 ms longer, an optimizer that takes 2 ms less, and 2 s more to build
    the model."""
    longer = {OutsidePart.IMPORTS: 3.0, OutsidePart.BUILD: 3.0, OutsidePart.WARM_UP: 2.0}
    after = measured(
        {StepPart.FORWARD: 0.015, StepPart.OPTIMIZER: 0.001}, outside_seconds=10.0, outside=longer
    )
    return explain(compare(side(measured(), name="before"), side(after, name="after")))


def test_bars_of_the_waterfall_follow_each_other_and_sum() -> None:
    after = measured({StepPart.DATA_WAIT: 0.0, StepPart.FORWARD: 0.015, StepPart.OPTIMIZER: 0.001})
    chart = waterfall(explained(measured(), after), NAMES)
    lift, *layers = chart.parts
    assert lift.hidden
    ends = []
    for place in range(len(chart.bars)):
        drawn = [part.values[place] for part in layers]
        low = lift.values[place] + min(0.0, sum(min(0.0, value) for value in drawn))
        high = lift.values[place] + sum(max(0.0, value) for value in drawn)
        ends.append((low, high))
    level = 0.0
    for low, high in ends[:-1]:
        assert level == pytest.approx(low, abs=0.011) or level == pytest.approx(high, abs=0.011)
        level = low if level == pytest.approx(high, abs=1e-9) else high
    assert ends[-1] == pytest.approx((0.0, level), abs=0.011)
    assert chart.bars[-1] == "mean step"
    assert level == pytest.approx(2.0, abs=0.011), "-1 + 5 - 2 ms; it crosses 0"


def test_what_lifts_a_bar_is_drawn_nowhere() -> None:
    chart = waterfall(slower().cells[0], NAMES)
    figure = chart_figure(chart)
    traces = figure["data"]
    assert isinstance(traces, list)
    assert traces[0]["opacity"] == 0
    assert [trace.get("showlegend", True) for trace in traces] == [False, True, False, True, False]
    assert chart_svg(chart, "a").count(">longer<") == 1
    assert '"name":""' not in screen_chart(chart, "a", "wide").values


def test_the_section_has_parts_causes_and_what_is_outside_the_steps() -> None:
    section = why_section([slower()])
    tables = [block for block in section.blocks if isinstance(block, Table)]
    assert [table.rows[-1][0].text for table in tables] == ["mean step", "all outside the steps"]
    assert [row[6].text for row in tables[0].rows if row[0].text == "forward"] == ["clear"]
    bullets = next(block for block in section.blocks if isinstance(block, Bullets))
    assert len(bullets.items) == 3, "two parts are clear, and one outside the steps"
    assert bullets.items[2] == "Each launch, outside its steps: building the model +2.000 s."
    assert any(isinstance(block, ChartGrid) for block in section.blocks)


def test_a_pull_request_gets_the_parts_and_what_changed_outside_them() -> None:
    section = why_section([slower()], brief=True)
    tables = [block for block in section.blocks if isinstance(block, Table)]
    assert [row[0].text for row in tables[1].rows] == [
        "building the model",
        "all outside the steps",
    ]
    assert not any(isinstance(block, ChartGrid) for block in section.blocks)
    equal = explain(compare(side(measured()), side(measured())))
    tables = [
        block for block in why_section([equal], brief=True).blocks if isinstance(block, Table)
    ]
    assert len(tables) == 1, "nothing changed outside the steps"


def test_without_being_asked_for_there_is_no_section() -> None:
    assert why_section([]).blocks == ()


def test_cells_without_parts_are_named() -> None:
    plain = measured()
    launches = tuple(one.model_copy(update={"parts": None}) for one in plain.launches)
    old = plain.model_copy(update={"launches": launches})
    pair = explain(compare(side(old, name="old"), side(plain, name="new")))
    (bullets,) = why_section([pair]).blocks
    assert isinstance(bullets, Bullets)
    assert "4 of 4 launches have no parts" in bullets.items[0]
    assert not any(isinstance(block, Paragraph) for block in why_section([pair]).blocks)
    assert "No parts of" in printed(pair)


def printed(pair: ExplainedPair, width: int = 100) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    print_blocks(why_section([pair], brief=True).blocks, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_terminal_shows_the_parts_and_the_causes() -> None:
    text = printed(slower())
    assert "Parts of the mean step, tiny ResNet" in text
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "+5.00" in lines["forward"]
    assert lines["forward"].rstrip().endswith("clear")
    assert "+2.000" in lines["building the model"]
    assert "imports" not in lines, "what did not change outside the steps is in HTML and JSON"
    assert "Forward +5.00 ms: clear, but" in text


def test_figures_are_not_broken_where_names_are_long() -> None:
    long = explain(
        compare(side(measured(), name="a" * 60), side(measured({StepPart.FORWARD: 0.02}), name="b"))
    )
    assert "20.01" in printed(long, 80)
