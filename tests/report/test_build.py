from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pypdf
import pytest

from tests.factories import cells, failed_record, launch_record, run
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.report.build import build_document
from torchscale.report.charts import chart_name
from torchscale.report.document import Document
from torchscale.report.formats.export import summary_csv
from torchscale.report.formats.html import render_html
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.formats.pdf import render_pdf
from torchscale.report.formats.report_export import summary_json
from torchscale.report.table import Column, Table
from torchscale.report.values import TableValue
from torchscale.schema.launch.transport import Transport, Way, WayKind
from torchscale.schema.run.content import Run
from torchscale.schema.run.experiment_file import Session
from torchscale.schema.state import State

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>$\\alpha$"


def mixed_run() -> Run:
    """Two batch sizes at 1, 2 and 4 ranks: one cell ran out of memory, two are skipped."""
    plan = cells(batch_sizes=[8, 16], gpu_counts=[1, 2])
    launches = {
        plan[0].id: [launch_record(plan[0], batches=[1.0, 1.01] * 5)],
        plan[1].id: [launch_record(plan[1], batches=[1.25, 1.24] * 5)],
        plan[2].id: [launch_record(plan[2])],
        plan[3].id: [failed_record(plan[3], State.OOM, "rank 1: CUDA out of memory")],
    }
    return run(
        launches,
        batch_sizes=[8, 16],
        gpu_counts=[1, 2, 4],
        problems=["run/cells/x/record.json: Invalid JSON"],
    )


@pytest.fixture(scope="module")
def summary() -> RunSummary:
    return summarize(mixed_run())


@pytest.fixture(scope="module")
def document(summary: RunSummary) -> Document:
    return build_document(summary)


class Page(HTMLParser):
    """Tags with what they refer to, and the text of the page without scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._silent = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._silent += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        self.text += "" if self._silent else data


def test_the_first_screen_says_how_it_scales_what_ran_and_what_is_missing(
    document: Document,
) -> None:
    overview = document.overview
    assert overview is not None
    assert overview.headline.text == "Scales to 2 CPU ranks at 80.7 %, in single launches."
    answers = {row.question: (row.answer, row.text) for row in overview.statuses}
    assert answers["Measured?"] == (
        "1 failed",
        "3 of 6 cells, 1 launch each; 1 oom; 2 skipped (needs 4 devices; there are 2 CPU ranks of "
        "1 core); "
        "1 damaged file skipped",
    )
    assert answers["Fits?"] == (
        "not all",
        "1 cell out of memory, the smallest: tiny ResNet, batch 16",
    )
    assert answers["Scales?"][0] == "no grade"
    assert "launched once" in answers["Certain?"][1]
    (failure,) = overview.failures
    assert (failure.state, failure.reason) == ("oom", "rank 1: CUDA out of memory")
    assert failure.cells == "tiny ResNet, fp32, batch 16, 2 devices"
    assert overview.rerun == "torchscale benchmark --rerun failed"


def test_a_table_holds_every_cell_with_its_state_and_reason(document: Document) -> None:
    section = next(section for section in document.sections if section.anchor == "cells")
    table = next(block for block in section.blocks if isinstance(block, Table))
    rows = [[value.text for value in row] for row in table.rows]
    assert [row[4] for row in rows] == ["ok", "ok", "skipped", "ok", "oom", "skipped"]
    assert rows[4][-1] == "rank 1: CUDA out of memory"
    assert rows[1][5:7] == ["129 (128 to 129)", "80.7 %"]
    assert rows[4][5:8] == ["–"] * 3


def test_csv_has_the_columns_that_were_promised_first(summary: RunSummary) -> None:
    rows = list(csv.DictReader(io.StringIO(summary_csv(summary))))
    assert list(rows[0])[:16] == [
        "cell_id",
        "model",
        "batch_size",
        "gpu_count",
        "precision",
        "strategy",
        "state",
        "samples_per_second",
        "samples_per_second_per_gpu",
        "tokens_per_second",
        "step_time_p50_ms",
        "step_time_p95_ms",
        "step_time_p99_ms",
        "efficiency",
        "peak_memory_bytes",
        "flags",
    ]
    assert rows[0]["samples_per_second"] == f"{800 / 10.05:.6g}"
    assert rows[1]["efficiency"] == f"{(1600 / 12.45) / (2 * 800 / 10.05):.6g}"
    assert rows[4]["samples_per_second"] == ""
    assert rows[4]["reason"] == "rank 1: CUDA out of memory"


def test_a_spreadsheet_runs_nothing() -> None:
    launches = {cell.id: [failed_record(cell, State.CRASHED, "=HYPERLINK(1)")] for cell in cells()}
    assert "'=HYPERLINK(1)" in summary_csv(summarize(run(launches)))


def test_json_is_json_with_absence_as_null(summary: RunSummary) -> None:
    content = json.loads(summary_json(summary))
    assert content["cells"][4]["figures"] is None
    assert content["cells"][1]["figures"]["samples_per_second"] == pytest.approx(1600 / 12.45)
    assert content["problems"] == ["run/cells/x/record.json: Invalid JSON"]


def test_html_is_one_file_that_asks_for_nothing(document: Document) -> None:
    html = render_html(document)
    assert len(html) < 200_000
    page = Page(html)
    for tag, attributes in page.tags:
        assert tag not in ("iframe", "object", "embed", "base", "form")
        for name in ("src", "href", "srcset", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
        assert not any(name.startswith("on") for name in attributes)
    policy = next(
        attributes["content"] for tag, attributes in page.tags if attributes.get("http-equiv")
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline'; img-src" in policy
    assert "'unsafe-eval'" not in policy
    assert "rank 1: CUDA out of memory" in page.text


def hostile_run() -> Run:
    plan = cells(models="tiny-resnet")
    launches = {
        plan[0].id: [launch_record(plan[0])],
        plan[1].id: [failed_record(plan[1], State.CRASHED, HOSTILE + "x" * 100_000)],
    }
    found = run(launches, problems=[HOSTILE])
    machine = found.experiment.environment.model_copy(
        update={
            "hostname": HOSTILE,
            "cpu": HOSTILE,
            "command": ("torchscale", HOSTILE),
            "env": {"NCCL_X": HOSTILE},
        }
    )
    hostile = found.experiment.model_copy(update={"environment": machine})
    return Run(found.name, hostile, found.cells, found.problems)


def test_hostile_text_stays_text() -> None:
    document = build_document(summarize(hostile_run()))
    page = Page(render_html(document))
    scripts = [attributes for tag, attributes in page.tags if tag == "script"]
    others = [attributes for attributes in scripts if attributes.get("type") != "application/json"]
    assert others == [{}]
    assert not [tag for tag, _ in page.tags if tag == "img"]
    assert "</script><script>alert(1)</script>" in page.text
    assert "\\<script\\>" in render_markdown(document)
    text = "".join(
        found.extract_text() for found in pypdf.PdfReader(io.BytesIO(render_pdf(document))).pages
    )
    assert "alert(1)" in text


def test_hostile_model_names_reach_charts_as_text() -> None:
    plan = cells(models="a:b")
    odd = [cell.model_copy(update={"model": HOSTILE}) for cell in plan]
    content = run({}, models="a:b")
    from torchscale.schema.run.content import CellRun
    from torchscale.schema.run.experiment_file import PlannedCell

    runs = tuple(CellRun(PlannedCell(cell=cell), (launch_record(cell),)) for cell in odd)
    document = build_document(summarize(Run("run", content.experiment, runs)))
    html = render_html(document)
    data = re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL)
    assert data
    assert not any("<" in text for text in data)
    assert any("\\u003c/script\\u003e" in text for text in data)
    assert "<script>alert" not in html
    assert render_pdf(document).startswith(b"%PDF")


def test_markdown_has_a_row_for_every_cell(document: Document) -> None:
    text = render_markdown(document)
    assert text.startswith("# Training scaling: experiment")
    assert text.count("| tiny-resnet |") == 1 + 3 + 3 + 6  # by series, throughput, step times, all
    assert "rank 1: CUDA out of memory" in text


def test_markdown_says_nothing_of_charts_that_it_lacks(document: Document) -> None:
    text = render_markdown(document)
    assert "Dashed: " in render_html(document)
    assert "Dashed: " not in text
    assert re.search(r"^- Measured\? \*\*1 failed\*\* 3 of 6 cells, ", text, re.MULTILINE)
    assert "## Scaling\n\n80.7 % at 2 CPU ranks.\n" in text


def test_a_run_that_went_on_under_other_conditions_says_which_and_how_each_was_started() -> None:
    begun = run()
    environment = begun.experiment.environment
    upgraded = environment.model_copy(
        update={
            "versions": environment.versions.model_copy(update={"driver": "560.28"}),
            "command": ("torchscale", "benchmark", "--benchmark.repeats=2"),
        }
    )
    later = Session(
        started_at="2026-02-03T00:00:00+00:00", tool_version="0.1.0", environment=upgraded
    )
    steady = render_markdown(build_document(summarize(begun)))
    assert "Sessions" not in steady
    assert "same conditions" not in steady
    first, second = begun.cells
    again = second.launches[0].model_copy(
        update={"launch": 1, "started_at": "2026-02-03T00:01:00+00:00"}
    )
    going_on = replace(
        begun,
        experiment=begun.experiment.model_copy(update={"later": (later,)}),
        cells=(first, replace(second, launches=(*second.launches, again))),
    )
    text = render_markdown(build_document(summarize(going_on)))
    assert "changed between sessions: driver" in text
    assert "| driver | absent, then 560.28 |" in text
    assert re.search(
        r"\| 2026-02-03 00:00 UTC \| 1 \| driver \| torchscale benchmark --benchmark", text
    )
    assert "```\ntorchscale benchmark\ntorchscale benchmark --benchmark.repeats=2\n```" in text
    assert "2026-01-02 03:04 to 2026-02-03 00:01 UTC" in text
    found = json.loads(summary_json(summarize(going_on)))["sessions"]
    assert [(one["launches"], one["changed"]) for one in found] == [(2, []), (1, ["driver"])]


def test_a_table_is_split_into_parts_that_each_name_their_rows() -> None:
    columns = (Column("model", identifies=True), *(Column(str(number)) for number in range(7)))
    table = Table(
        "t", columns, ((TableValue("m"), *(TableValue(f"v{number}") for number in range(7))),)
    )
    assert table.split(8) == [table]
    first, second = table.split(5)
    assert (first.caption, second.caption) == ("t, part 1 of 2", "t, part 2 of 2")
    assert [column.title for column in first.columns] == ["model", "0", "1", "2", "3"]
    assert [value.text for value in second.rows[0]] == ["m", "v4", "v5", "v6"]
    nameless = Table("t", columns[1:], ())
    assert nameless.split(3) == [nameless], "no part could say which row is which"


def test_wide_tables_are_split_on_paper(document: Document) -> None:
    text = " ".join(
        page.extract_text() for page in pypdf.PdfReader(io.BytesIO(render_pdf(document))).pages
    )
    flat = " ".join(text.split())
    assert "Step times and phases (setting fp32), part 1 of 2" in flat
    assert "Step times and phases (setting fp32), part 2 of 2" in flat
    assert "part 1 of" not in render_markdown(document)


def test_pdf_has_pages_contents_and_searchable_text(document: Document) -> None:
    reader = pypdf.PdfReader(io.BytesIO(render_pdf(document)))
    text = "\n".join(page.extract_text() for page in reader.pages)
    assert len(reader.pages) >= 2
    assert f"page 1 of {len(reader.pages)}" in text
    assert "How to reproduce" in text
    assert "CUDA out of memory" in text
    assert "samples/s" in text
    assert not any(page.images for page in reader.pages)


def test_pdf_is_tagged_for_screen_readers_and_no_text_is_off_the_page(document: Document) -> None:
    reader = pypdf.PdfReader(io.BytesIO(render_pdf(document)))
    root: Any = reader.trailer["/Root"]
    assert root["/MarkInfo"]["/Marked"]
    assert root["/Lang"] == "en"
    tree = set(_tags(root["/StructTreeRoot"].get_object()))
    assert {"/H1", "/H2", "/H3", "/Table", "/TH", "/L", "/Figure", "/Caption"} <= tree
    for page in reader.pages:
        places: list[float] = []

        def see(
            text: str,
            outer: list[float],
            inner: list[float],
            *_: object,
            seen: list[float] = places,
        ) -> None:
            if text.strip():
                seen.append(inner[4] * outer[0] + inner[5] * outer[2] + outer[4])

        page.extract_text(visitor_text=see)
        assert 0 <= min(places) <= max(places) <= float(page.mediabox.width)


def _tags(element: Any) -> Iterator[str]:
    if "/S" in element:
        yield str(element["/S"])
    kids = element.get("/K", [])
    for kid in kids if isinstance(kids, list) else [kids]:
        inner = kid.get_object() if hasattr(kid, "get_object") else kid
        if isinstance(inner, dict):
            yield from _tags(inner)


def test_equal_input_gives_equal_bytes() -> None:
    def everything() -> list[str | bytes]:
        summary = summarize(mixed_run())
        document = build_document(summary)
        return [
            render_html(document),
            render_pdf(document),
            render_markdown(document),
            summary_csv(summary),
            summary_json(summary),
        ]

    assert everything() == everything()


def test_a_run_with_nothing_measured_still_makes_a_report() -> None:
    document = build_document(summarize(run({})))
    assert document.overview is not None
    assert document.overview.headline.text == "Nothing has been measured yet: 2 cells waiting."
    assert document.charts == ()
    assert "not run yet" in render_markdown(document)
    assert "Plotly.newPlot" not in render_html(document)
    assert render_pdf(document).startswith(b"%PDF")


def test_a_single_count_has_no_efficiency_and_says_so() -> None:
    document = build_document(summarize(run(gpu_counts=[1])))
    assert "only one device count was measured" in render_markdown(document)
    assert [chart.name for chart in document.charts if chart.name.startswith("efficiency")] == []


def test_a_table_of_one_row_has_nothing_to_filter() -> None:
    one = render_html(build_document(summarize(run(gpu_counts=[1]))))
    two = render_html(build_document(summarize(run(gpu_counts=[1, 2]))))
    assert 'id="table-cells-1-filter"' not in one
    assert 'id="table-cells-1-filter"' in two


def test_names_of_charts_differ_where_titles_do() -> None:
    long = (
        "tiny decoder, fp32 hybrid data=2 shard=2 tensor=2 pipeline=2 schedule=interleaved "
        "microbatches="
    )
    names = [chart_name("throughput", f"{long}{number}") for number in (8, 16)]
    assert len(set(names)) == 2
    assert all(len(name) <= 80 and re.fullmatch(r"[a-z0-9-]+", name) for name in names)
    assert chart_name("lost", "GPT-2, bf16") == "lost-gpt-2-bf16"


def test_strategies_of_one_model_are_told_apart_everywhere() -> None:
    document = build_document(
        summarize(run(models="tiny-decoder", parallel={"strategy": ["ddp", "fsdp"]}))
    )
    charts = [
        chart
        for section in document.sections
        for block in section.blocks
        for chart in getattr(block, "charts", ())
    ]
    assert charts
    assert len({chart.name for chart in charts}) == len(charts)
    assert {"fp32", "fp32 fsdp"} <= {
        chart.title.partition(", ")[2].partition(",")[0] for chart in charts
    }


def test_the_environment_says_by_what_data_moved() -> None:
    tcp = Transport(ways=(Way(kind=WayKind.TCP, name="TCP", devices=("lo",), family="IPv4"),))
    unknown = Transport(unknown="no line")

    def told(*transports: Transport | None) -> str:
        asked: dict[str, Any] = {"batch_sizes": [4, 8], "gpu_counts": [1, 2]}
        launches = {
            cell.id: [launch_record(cell, transport=transport)]
            for cell, transport in zip(cells(**asked), transports, strict=True)
        }
        text = render_markdown(build_document(summarize(run(launches, **asked))))
        return next(iter(re.findall(r"\| moved by \| (.*?) \|", text)), "")

    assert told(None, None, None, None) == ""
    assert told(None, tcp, None, tcp) == "TCP over lo (IPv4)"
    assert told(None, tcp, None, unknown) == (
        "TCP over lo (IPv4) (2 ranks); not known: no line (2 ranks)"
    )
