from __future__ import annotations

import io
import re

from rich.console import Console

from tests.analysis.comparison.test_compare import STEADY, result, scaled, side
from tests.factories import cells
from torchscale.analysis.comparison.compare import compare
from torchscale.config.choices import Metric
from torchscale.report.document import Chart, Document
from torchscale.report.formats.html import render_html
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.sections.comparison import ComparisonReport, comparison_document
from torchscale.report.terminal.comparison import print_comparison
from torchscale.schema.cells.hardware import HardwareCell
from torchscale.schema.run.metric_key import MetricKey
from torchscale.schema.run.result_set import LaunchFigures, ResultCell
from torchscale.schema.state import State

NOTE = "are not drawn; see the table"


def document(*changed: tuple[float, ...], threshold: float = 0.02) -> Document:
    """As many cells, steady in the reference, with these throughputs on the other side."""
    chosen = cells()[: len(changed)]
    reference = side(*(result(cell) for cell in chosen), name="before")
    other = side(*(result(cell, rates) for cell, rates in zip(chosen, changed, strict=True)), name="after")
    pair = compare(reference, other, threshold=threshold)
    return comparison_document(ComparisonReport((pair,), (), ("before", "after"), threshold=threshold))


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
        matmul_sizes=(64,), matmul_dtypes=("fp32",), seconds=0.1, copy_bytes=1, disk_bytes=1, world_size=1, device="cpu"
    )
    machine = ResultCell(
        cell=ceilings,
        state=State.OK,
        launches=(LaunchFigures(values={MetricKey(metric=Metric.COPY, copy_kind="device"): 1e9}),),
    )
    one = side(result(chosen[0]), skipped, machine, name="before")
    other = side(result(chosen[0], tuple(scaled(STEADY, 20))), skipped, machine, name="after")
    console = Console(width=80, record=True, file=io.StringIO())
    print_comparison(ComparisonReport((compare(one, other),), (), ("before", "after")), console)
    text = console.export_text()
    assert "samples/s\ncell        batch n before after change  95 % interval verdict\n" in text
    assert re.search(r"^tiny ResNet     8 1    100 2,000  ×20.0 ×20\.0 to ×20\.0 better *$", text, re.MULTILINE)
    assert "copy bandwidth device\ncell" in text
    assert "2 devices: unmeasured: both skipped (needs 8 devices)" in text


def test_an_interval_that_tells_nothing_does_not_squeeze_the_others() -> None:
    wild = (10.0, 100.0, 1000.0)
    found = document(wild, STEADY)
    changes = chart_of(found).series[0]
    assert max(changes.high) < 1
    assert NOTE in render_html(found)
    assert NOTE not in render_markdown(found)
    assert "unclear" in render_markdown(found)
    assert NOTE not in render_html(document(STEADY, STEADY))
