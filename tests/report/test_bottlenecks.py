"""Lost time, causes and profiles in the report: worked figures, both renderers, a real browser."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pypdf
import pytest
from playwright.sync_api import sync_playwright

from tests.analysis.test_launch_signals import ranks_of
from tests.analysis.test_stalls import training
from tests.factories import cells, launch_record, rank_record, run
from tests.report.test_html_in_browser import ARGUMENTS, CHROMIUM
from torchscale.analysis.launch_signals import digest_signals
from torchscale.analysis.results import summarize
from torchscale.analysis.stalls import analyse
from torchscale.report.bottlenecks import diagnosis_section, lost_time, profile_document, profile_section
from torchscale.report.build import build_document
from torchscale.report.chart_plotly import chart_json
from torchscale.report.document import ChartGrid, Document, Section, StackedChart, Table, TimelineChart
from torchscale.report.export import summary_json
from torchscale.report.html import render_html
from torchscale.report.markdown import render_markdown
from torchscale.report.pdf import render_pdf
from torchscale.schema.record import LaunchRecord, RankSignals
from torchscale.schema.run import Run

PLAIN = RankSignals(
    alone_seconds=(0.045, 0.0451, 0.0449, 0.045),
    alone_wall_seconds=0.32,
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
    alone = [tuple(value + extra for value in PLAIN.alone_seconds or ()) for extra in late]
    ranks = [
        rank_record(cell, rank, batches, signals=PLAIN.model_copy(update={"alone_seconds": alone[rank]}))
        for rank in range(len(late))
    ]
    return launch_record(cell, batches=batches, ranks=ranks, signals=digest_signals(series, [10] * 10))


def diagnosed_run(slow: float = 0.02, transfer: float = 0.004) -> Run:
    """One and two ranks, the second slower; its profile beside it."""
    one, two = record((0.0,)), record((0.0, slow), transfer)
    found = run({one.cell_id: [one], two.cell_id: [two]})
    profile = analyse(training([0.0, 100.0]))
    return replace(found, cells=(found.cells[0], replace(found.cells[1], profile=profile)))


def only(section: Section, kind: type[Table]) -> Table:
    return next(block for block in section.blocks if isinstance(block, kind))


def chart(document: Document, kind: type[StackedChart] | type[TimelineChart]) -> StackedChart | TimelineChart:
    return next(item for item in document.charts if isinstance(item, kind))


def test_the_stacked_parts_add_up_to_the_step_in_figures_and_picture() -> None:
    summary = summarize(diagnosed_run())
    section = lost_time(summary)
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
    figure = json.loads(chart_json(stacked).replace("\\u003c", "<"))
    assert figure["layout"]["barmode"] == "relative"
    assert [trace["name"] for trace in figure["data"]][:2] == ["step at 1", "own compute slower"]


def test_findings_profiles_and_verdict_name_the_rank() -> None:
    summary = summarize(diagnosed_run())
    document = build_document(summary)
    assert any("Straggler: rank 1" in paragraph for paragraph in document.verdict)
    assert "The windows without synchronisation took 320 ms a launch" in str(diagnosis_section(summary).blocks)
    row = only(diagnosis_section(summary), Table).rows[0]
    assert "rank 1 arrives 20.0 ms late" in row[5].text
    profile = profile_section(summary)
    assert "Sync stall time: 5.0 % of step time (2 ranks, 24 steps)" in str(profile.blocks[0])
    timeline = chart(document, TimelineChart)
    assert isinstance(timeline, TimelineChart)
    assert timeline.rows == ("rank 0", "rank 1")
    waiting = dict(timeline.kinds)["waiting for ranks"]
    assert [stretch.row for stretch in waiting] == [0]
    assert waiting[0].end - waiting[0].start == pytest.approx(0.1)
    content = json.loads(summary_json(summary))
    assert content["cells"][1]["diagnosis"]["findings"][0]["rank"] == 1
    assert content["cells"][1]["decomposition"]["straggler_wait"] == pytest.approx(0.01)


def test_a_clean_run_says_that_nothing_was_found() -> None:
    text = render_markdown(build_document(summarize(diagnosed_run(0.0, 0.001))))
    assert "At 2 CPU ranks the signals show nothing that holds training back." in text
    assert "No bottleneck was found in 1 of 1 cells." in text


def test_every_format_shows_them() -> None:
    document = build_document(summarize(diagnosed_run()))
    text = render_markdown(document)
    assert "## Where the time goes" in text
    assert "## What holds it back" in text
    pages = "".join(page.extract_text() for page in pypdf.PdfReader(io.BytesIO(render_pdf(document))).pages)
    flat = re.sub(r"\s+", " ", pages)
    assert "Straggler: rank 1" in flat
    assert "waiting for ranks" in flat  # the legend of the timeline, as text
    assert render_pdf(document) == render_pdf(document)


def test_one_recording_is_a_report_of_its_own() -> None:
    document = profile_document(analyse(training([0.0, 100.0])), "mine")
    text = render_markdown(document)
    assert "# Training profile: mine" in text
    assert "Sync stall time: 5.0 %" in text
    assert "| all\\_reduce |" in text
    assert render_html(document).count("<h2") == 1
    assert render_pdf(document).startswith(b"%PDF")


@pytest.mark.skipif(not Path(CHROMIUM).exists(), reason=f"no {CHROMIUM}; `make test` installs it")
def test_the_browser_draws_bars_and_timeline(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(build_document(summarize(diagnosed_run()))))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = browser.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(path.as_uri())
        page.wait_for_selector(".plot .main-svg")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")  # draws what is not near the window as well
        assert page.locator(".plot").count() == page.locator(".plot.js-plotly-plot").count()
        assert page.locator(".charts.wide .plot .bars .point").count() == 5
        assert said == []
        browser.close()
