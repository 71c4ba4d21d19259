"""One quantity of one cell has one text: in every section and format, over several launches."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pypdf
import pytest
from rich.console import Console

import torchscale
from tests.factories import run
from tests.report.sections.test_lost_time import record
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.analysis.training.summary import TrainingSummary
from torchscale.report.build import build_document
from torchscale.report.charts import Chart
from torchscale.report.document import ChartGrid, Document
from torchscale.report.formats.columns import cell_row
from torchscale.report.formats.console import print_document
from torchscale.report.formats.export import summary_csv
from torchscale.report.formats.html import render_html
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.formats.pdf import render_pdf
from torchscale.report.formats.report_export import cell_export, summary_json
from torchscale.report.table import Table
from torchscale.report.text.cell_values import efficiency_value
from torchscale.report.text.figures import DEFINED, STEP_MEAN, STEP_P50, THROUGHPUT
from torchscale.report.text.quantity import Quantity
from torchscale.report.values import TableValue
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.profiles.finding import FindingKind
from torchscale.schema.run.content import Run
from torchscale.store.run_folder import RunFolder

SPEEDS = (1.0, 1.31, 0.87)
"""Launches that differ so much that an arithmetic and a geometric mean, or a mean and a median,
read differently."""


def slower(launch: LaunchRecord, factor: float, number: int) -> LaunchRecord:
    """The same launch with every time scaled."""

    def scaled(value: object, key: str = "") -> object:
        if isinstance(value, dict):
            return {name: scaled(item, name) for name, item in value.items()}
        if isinstance(value, list):
            return [scaled(item, key) for item in value]
        timed = key.endswith("seconds") or key.startswith("mean_") or key in _TIMES
        return value * factor if isinstance(value, float) and timed else value

    content = json.loads(launch.model_dump_json())
    return LaunchRecord.model_validate({**dict(scaled(content)), "launch": number})  # type: ignore[call-overload]


_TIMES = {"mean", "minimum", "p50", "p95", "p99", "maximum", "values", "compute", "data_wait", "wait", "transfer",
          "exposed_p50", "exposed_p95"}  # fmt: skip


@cache
def several_launches() -> Run:
    """One and two ranks, three launches each."""
    launches = [record((0.0,)), record((0.0, 0.001), 0.012)]
    return run(
        {
            launch.cell_id: [slower(launch, factor, number) for number, factor in enumerate(SPEEDS)]
            for launch in launches
        },
        benchmark={"repeats": 3},
    )


@cache
def summary() -> RunSummary:
    return summarize(several_launches())


@cache
def document() -> Document:
    return build_document(summary())


def cell() -> TrainingSummary:
    """The cell on two ranks."""
    return summary().cells[1]


def rows_of_cell(shown: Document) -> Iterator[tuple[str, dict[str, TableValue]]]:
    """The cell's row of every table that has one, by heading."""
    noun = {"CPU ranks", "GPUs"}
    for section in shown.sections:
        for block in section.blocks:
            if not isinstance(block, Table):
                continue
            headings = [column.title for column in block.columns]
            for row in block.rows:
                named = dict(zip(headings, row, strict=True))
                if any(named[name].text == "2" for name in noun & set(headings)):
                    yield block.caption, named


@pytest.mark.parametrize("quantity", DEFINED, ids=lambda quantity: quantity.heading)
def test_every_table_has_one_text_for_it(quantity: Quantity) -> None:
    seen = {
        caption: named[quantity.heading]
        for caption, named in rows_of_cell(document())
        if quantity.heading in named
    }
    assert {value.text for value in seen.values()} <= {quantity.of(cell()).text}, seen


def test_tables_of_figures_were_looked_at() -> None:
    headings = [heading for _, named in rows_of_cell(document()) for heading in named]
    assert headings.count(STEP_MEAN.heading) >= 3, "cells, step times, parts of the step"
    assert THROUGHPUT.heading in headings and STEP_P50.heading in headings


def test_every_format_has_that_text() -> None:
    """Throughput, mean step, median and efficiency as text in all formats for people."""
    wanted = [quantity.of(cell()).text for quantity in (THROUGHPUT, STEP_MEAN, STEP_P50)]
    wanted.append(efficiency_value(cell()).text)
    assert " to " in wanted[-1] and " to " in wanted[0], "both ends, in the same words everywhere"
    pdf = "".join(
        page.extract_text() for page in pypdf.PdfReader(io.BytesIO(render_pdf(document()))).pages
    )
    console = Console(file=io.StringIO(), width=200, color_system=None)
    print_document(document(), console)
    assert isinstance(console.file, io.StringIO)
    for name, text in (
        ("html", render_html(document())),
        ("md", render_markdown(document())),
        ("pdf", pdf),
    ):
        for figure in wanted:
            assert figure.replace("*", "") in " ".join(text.split()).replace("\xa0", " "), (
                name,
                figure,
            )
    for figure in wanted:
        assert figure in console.file.getvalue(), figure


def test_numbers_for_programs_are_the_same(tmp_path: Path) -> None:
    """CSV, JSON and the frames of the Python API."""
    figures = cell().figures
    assert figures is not None
    row = next(
        row
        for row in csv.DictReader(io.StringIO(summary_csv(summary())))
        if row["gpu_count"] == "2"
    )
    exported = json.loads(summary_json(summary()))["cells"][1]["figures"]
    folder = RunFolder.create(tmp_path / "run", several_launches().experiment)
    for cell_run in several_launches().cells:
        for launch in cell_run.launches:
            folder.begin_launch(cell_run.planned.cell, launch.launch)
            folder.finish_launch(cell_run.planned.cell, launch)
    frame = torchscale.load_results(tmp_path / "run").cells.set_index("gpu_count").loc[2]
    for key, column, value in (
        ("samples_per_second", "samples_per_second", figures.samples_per_second),
        ("step_mean", "step_time_mean_ms", figures.step_mean),
        ("step_p50", "step_time_p50_ms", figures.steps.p50),
        ("step_p99", "step_time_p99_ms", figures.steps.p99),
    ):
        factor = 1e3 if column.endswith("_ms") else 1
        assert value is not None
        assert exported[key] == value
        assert float(row[column]) == pytest.approx(value * factor, rel=1e-5)
        assert frame[column] == pytest.approx(value * factor, rel=1e-12)
    efficiency = cell().efficiency
    assert figures.step_interval is not None and efficiency is not None
    for key, column, ends in (
        (
            "samples_per_second",
            "samples_per_second",
            figures.rate_interval(figures.samples_per_second),
        ),
        ("step_mean", "step_time_mean_ms", figures.step_interval),
        ("", "efficiency", efficiency.interval),
    ):
        assert ends is not None
        for side, end in zip(("low", "high"), ends, strict=True):
            factor = 1e3 if column.endswith("_ms") else 1
            assert not key or exported[f"{key}_{side}"] == end
            assert float(row[f"{column}_{side}"]) == pytest.approx(end * factor, rel=1e-5)
            assert frame[f"{column}_{side}"] == pytest.approx(end * factor, rel=1e-12)


def test_an_interval_without_an_upper_end_leaves_it_open() -> None:
    """Of a single launch whose mean step may be 0, by its scatter."""
    figures = cell().figures
    assert figures is not None and figures.samples_per_second is not None
    unsure = replace(cell(), figures=replace(figures, half_width=1.5, run_half_width=None))
    row = cell_row(unsure)
    assert row["samples_per_second_low"] == pytest.approx(figures.samples_per_second / 2.5)
    assert row["samples_per_second_high"] is None
    assert row["step_time_mean_ms_low"] == 0.0
    exported = cell_export(unsure).figures
    assert exported is not None
    assert (exported.samples_per_second_high, exported.step_mean_low) == (None, 0.0)
    assert " to over " in THROUGHPUT.of(unsure).text


def test_figures_of_a_cell_follow_from_each_other() -> None:
    figures, lost, efficiency, diagnosis = (
        cell().figures,
        cell().decomposition,
        cell().efficiency,
        cell().diagnosis,
    )
    assert (
        figures is not None
        and lost is not None
        and efficiency is not None
        and diagnosis is not None
    )
    assert figures.samples_per_second is not None
    assert figures.samples_per_second * figures.step_mean == pytest.approx(
        cell().cell.global_batch_size, rel=1e-12
    )
    assert lost.step == figures.step_mean
    assert lost.ideal / lost.step == pytest.approx(efficiency.value, rel=1e-12)
    (exposed,) = [
        item for item in diagnosis.findings if item.kind is FindingKind.EXPOSED_COMMUNICATION
    ]
    assert exposed.cost_seconds == pytest.approx(lost.exposed_communication, rel=1e-12)
    mean = math.prod(figures.launch_samples_per_second) ** (1 / 3)
    assert figures.samples_per_second == pytest.approx(mean, rel=1e-12)


def test_charts_draw_what_the_tables_say() -> None:
    figures = cell().figures
    assert figures is not None
    charts = [
        chart
        for section in document().sections
        for block in section.blocks
        if isinstance(block, ChartGrid)
        for chart in block.charts
        if isinstance(chart, Chart)
    ]
    throughput = next(chart for chart in charts if chart.name.startswith("throughput"))
    assert throughput.series[0].y[-1] == figures.samples_per_second
    assert throughput.series[0].launches[-1] == figures.launch_samples_per_second
    assert figures.run_half_width is not None
    assert throughput.series[0].high[-1] == pytest.approx(
        figures.samples_per_second * (1 + figures.run_half_width)
    )
    distribution = next(chart for chart in charts if chart.name.startswith("steps"))
    line = distribution.series[-1]
    median = figures.steps.p50 * 1e3
    up_to = [
        share
        for seconds, share in zip(line.x, line.y, strict=True)
        if seconds <= median * (1 + 1e-6)
    ]
    below = [
        share
        for seconds, share in zip(line.x, line.y, strict=True)
        if seconds < median * (1 - 1e-6)
    ]
    assert max(below) < 50 <= max(up_to)


def test_findings_and_parts_of_the_step_read_the_same() -> None:
    """The cost of exposed communication in the findings is the part of the step in the
    decomposition."""
    text = render_markdown(document())
    parts = next(
        named for _, named in rows_of_cell(document()) if "+ exposed communication" in named
    )
    share = re.search(r"\((.*)\)", parts["+ exposed communication"].text)
    assert share is not None
    assert f"**Exposed communication** ({share[1]} of the step)" in text
