"""The table of cells: open on the first page, speed and efficiency in one row, short names with
their options below."""

from __future__ import annotations

import io
from dataclasses import replace

import pypdf
import pytest
from playwright.sync_api import Browser

from tests.factories import cells, launch_record, run
from tests.report.sections.test_lost_time import diagnosed_run
from tests.report.test_build import mixed_run
from tests.report.test_sections import many_cells
from torchscale.analysis.summary.run import RunSummary, summarize
from torchscale.analysis.training.summary import Figures
from torchscale.report.build import build_document
from torchscale.report.document import Bullets, Document
from torchscale.report.formats.html import render_html
from torchscale.report.formats.markdown import render_markdown
from torchscale.report.formats.pdf import render_pdf
from torchscale.report.sections.cells import MAX_FIRST_ROWS
from torchscale.report.table import Table
from torchscale.report.text.figures import STEP_RATE
from torchscale.schema.state import State

VARIANTS = [
    {
        "name": "tiny-decoder",
        "hidden_size": 64,
        "num_layers": layers,
        "num_heads": 2,
        "sequence_length": 32,
    }
    for layers in (2, 3)
]


def table_of(document: Document, anchor: str) -> Table:
    section = document.section(anchor)
    assert section is not None
    return next(block for block in section.blocks if isinstance(block, Table))


def variants_run() -> RunSummary:
    plan = cells(models=VARIANTS)
    return summarize(run({cell.id: [launch_record(cell)] for cell in plan}, models=VARIANTS))


def scripts_run(*, samples_known: bool) -> RunSummary:
    """Two scripts of one name with the figures of other cells."""
    figures = [replace(one, samples_per_second=None) for one in measured_figures()]
    if samples_known:
        figures[0] = measured_figures()[0]
    scripts = [{"script": "train.py --data d"}, {"script": "train.py --data d --lr 0.1"}]
    planned = summarize(run({}, models=scripts, gpu_counts=[2]))
    measured = [
        replace(cell, state=State.OK, figures=of_cell)
        for cell, of_cell in zip(planned.cells, figures, strict=True)
    ]
    return replace(planned, in_plan_order=tuple(measured))


def measured_figures() -> list[Figures]:
    return [cell.figures for cell in summarize(run()).cells if cell.figures is not None]


def test_scripts_whose_samples_are_unknown_have_steps_a_second_and_their_arguments() -> None:
    summary = scripts_run(samples_known=False)
    document = build_document(summary)
    for anchor in ("cells", "throughput"):
        table = table_of(document, anchor).compact()
        titles = [column.title for column in table.columns]
        assert "steps/s" in titles and "samples/s" not in titles, anchor
        names = [row[titles.index("model")].text for row in table.rows]
        assert names == ["train.py", "train.py --lr 0.1"], anchor
        rates = [row[titles.index("steps/s")].text for row in table.rows]
        assert rates == [STEP_RATE.of(cell).text for cell in summary.cells]
    assert document.overview is not None
    assert "train.py --lr 0.1 " in document.overview.headline.text
    mixed = table_of(build_document(scripts_run(samples_known=True)), "cells")
    assert {"samples/s", "steps/s"} <= {column.title for column in mixed.columns}


def test_speed_and_efficiency_are_in_one_row_of_a_page() -> None:
    document = build_document(summarize(mixed_run()))
    table = table_of(document, "cells").compact()
    titles = [column.title for column in table.columns]
    assert table.split(10) == [table]
    assert titles.index("samples/s") < titles.index("efficiency")
    first = pypdf.PdfReader(io.BytesIO(render_pdf(document))).pages[0].extract_text()
    assert "tiny-resnet 8 2 ok 129 (128 to 129) 80.7 %" in " ".join(first.split())


def test_the_table_is_open_without_a_click(
    browser: Browser, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render_html(build_document(summarize(mixed_run()))))
    page = browser.new_page()
    page.goto(path.as_uri())
    assert page.get_by_role("cell", name="129 (128 to 129)", exact=True).first.is_visible()
    page.close()


def test_of_very_many_cells_the_first_are_open_and_all_are_folded() -> None:
    document = build_document(many_cells())
    first, every = table_of(document, "cells"), table_of(document, "all-cells")
    assert len(first.rows) == MAX_FIRST_ROWS
    assert first.caption == "First 20 of 320 cells"
    assert first.rows == every.rows[:MAX_FIRST_ROWS]
    assert len(every.rows) == 320
    unfolded = [section.anchor for section in document.sections if section.unfolded]
    assert unfolded == ["cells"]
    assert build_document(summarize(mixed_run())).section("all-cells") is None


def test_variants_of_a_model_have_short_names_with_their_options_once_below() -> None:
    document = build_document(variants_run())
    names = {row[0].text for row in table_of(document, "cells").rows}
    assert names == {"tiny-decoder hs64 l2 h2 sl32", "tiny-decoder hs64 l3 h2 sl32"}
    section = document.section("cells")
    assert section is not None
    listed = next(block for block in section.blocks if isinstance(block, Bullets)).items
    assert (
        "tiny-decoder hs64 l2 h2 sl32: hidden_size=64, num_layers=2, num_heads=2, "
        "sequence_length=32" in listed
    )
    text = render_markdown(document)
    assert text.replace("\\", "").count(": hidden_size=64, num_layers=2") == 1


@pytest.mark.parametrize(
    "summary", [summarize(mixed_run()), summarize(diagnosed_run()), many_cells(2)]
)
def test_no_section_of_markdown_is_empty(summary: RunSummary) -> None:
    parts = render_markdown(build_document(summary)).split("\n## ")[1:]
    for part in parts:
        title, *lines = [line for line in part.splitlines() if line]
        assert len(lines) >= 2, f"{title} has only its key figure"


def test_a_column_without_a_warning_takes_no_room() -> None:
    plan = cells()
    quiet = run({cell.id: [launch_record(cell)] for cell in plan})
    titles = [
        column.title
        for column in table_of(build_document(summarize(quiet)), "cells").compact().columns
    ]
    assert "reason or warnings" not in titles
    noisy = table_of(build_document(summarize(mixed_run())), "cells").compact()
    assert "reason or warnings" in [column.title for column in noisy.columns]
