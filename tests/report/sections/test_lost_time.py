"""Lost time in the report: worked figures, both renderers, a real browser."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pypdf
import pytest
from playwright.sync_api import Browser

from tests.analysis.training.test_signals import ranks_of
from tests.factories import cells, launch_record, rank_record, run
from tests.features.trace.analysis.test_analyze import training
from torchscale.analysis.summary.run import summarize
from torchscale.analysis.training.digest import digest_signals
from torchscale.features.trace.analysis.analyze import analyze_trace
from torchscale.report.build import build_document
from torchscale.report.charts import StackedChart, TimelineChart
from torchscale.report.document import ChartGrid, Document, Section
from torchscale.report.formats.charts.chart_plotly import chart_figure
from torchscale.report.formats.html import render_html
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.formats.pdf import render_pdf
from torchscale.report.sections.lost_time import lost_time_section
from torchscale.report.table import Table
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.launch.signals import RankSignals
from torchscale.schema.run.content import Run

PLAIN = RankSignals(
    unsynchronized_seconds=(0.045, 0.0451, 0.0449, 0.045),
    unsynchronized_wall_seconds=0.32,
    bucket_bytes=(2_000_000,),
    collections=0,
    collection_seconds=0.0,
    longest_collection_seconds=0.0,
    page_faults=0,
)


def record(late: tuple[float, ...], transfer: float = 0.004) -> LaunchRecord:
    """A launch whose ranks compute longer by this than 50 ms."""
    cell = next(cell for cell in cells() if cell.world_size == len(late))
    series = ranks_of(late, transfer)
    batches = (series[0][0].seconds * 10,) * 10
    alone = [tuple(value + extra for value in PLAIN.unsynchronized_seconds or ()) for extra in late]
    ranks = [
        rank_record(
            cell,
            rank,
            batches,
            signals=PLAIN.model_copy(update={"unsynchronized_seconds": alone[rank]}),
        )
        for rank in range(len(late))
    ]
    return launch_record(
        cell, batches=batches, ranks=ranks, signals=digest_signals(series, [10] * 10)
    )


def diagnosed_run(slow: float = 0.02, transfer: float = 0.004) -> Run:
    """One and two ranks, the second slower; its profile beside it."""
    one, two = record((0.0,)), record((0.0, slow), transfer)
    found = run({one.cell_id: [one], two.cell_id: [two]})
    profile = analyze_trace(training([0.0, 100.0]))
    return replace(found, cells=(found.cells[0], replace(found.cells[1], profile=profile)))


def only(section: Section, kind: type[Table]) -> Table:
    return next(block for block in section.blocks if isinstance(block, kind))


def chart(
    document: Document, kind: type[StackedChart] | type[TimelineChart]
) -> StackedChart | TimelineChart:
    return next(item for item in document.charts if isinstance(item, kind))


def test_the_stacked_parts_add_up_to_the_step_in_figures_and_picture() -> None:
    summary = summarize(diagnosed_run())
    section = lost_time_section(summary)
    (row,) = only(section, Table).rows
    values = [value.sort for value in row[4:]]
    step, ideal, *parts = (float(str(value)) for value in values)
    assert step == pytest.approx(0.075)
    assert ideal + sum(parts) == pytest.approx(step, rel=1e-9)
    (grid,) = (block for block in section.blocks if isinstance(block, ChartGrid))
    stacked = grid.charts[0]
    assert isinstance(stacked, StackedChart)
    assert stacked.bars == ("1", "2")
    assert sum(part.values[1] for part in stacked.parts) == pytest.approx(75.0)
    assert sum(part.values[0] for part in stacked.parts) == pytest.approx(55.0)
    figure: Any = chart_figure(stacked)
    assert figure["layout"]["barmode"] == "relative"
    assert [trace["name"] for trace in figure["data"]][:2] == [
        "step at 1, less what is faster",
        "+ compute",
    ]
    assert min(value for part in stacked.parts for value in part.values) >= 0, (
        "nothing hangs below the axis"
    )


def test_every_format_shows_them() -> None:
    document = build_document(summarize(diagnosed_run()))
    text = render_markdown(document)
    assert "## Where the time goes" in text
    assert "## What holds it back" in text
    pages = "".join(
        page.extract_text() for page in pypdf.PdfReader(io.BytesIO(render_pdf(document))).pages
    )
    flat = re.sub(r"\s+", " ", pages)
    assert "Straggler: rank 1" in flat
    assert "waiting for ranks" in flat  # the legend of the timeline, as text
    assert render_pdf(document) == render_pdf(document)


def test_the_browser_draws_bars_and_timeline(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(build_document(summarize(diagnosed_run()))))
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    assert page.locator(".plot").count() == page.locator(".plot svg").count()
    page.get_by_role("button", name="Unfold all").click()
    timeline = page.locator(".charts.wide .plot").first
    timeline.scroll_into_view_if_needed()
    place = timeline.bounding_box()
    assert place is not None
    told = set()
    for down in (0.3, 0.5, 0.6):
        for across in range(10, 95, 5):
            page.mouse.move(
                place["x"] + place["width"] * across / 100, place["y"] + place["height"] * down
            )
            if page.locator(".tip").is_visible():
                told.add(page.locator(".tip").inner_text())
    assert any(
        text.startswith("waiting for ranks: from ") and text.endswith(" 0.1 long") for text in told
    ), told
    assert said == []
    page.close()
