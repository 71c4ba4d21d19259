"""Reports under axe-core, the accessibility checker: in both colour schemes, on a desktop and on a
phone, folded and unfolded."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from tests.campaign import WHOLE
from tests.report.test_build import hostile_run, mixed_run
from tests.report.test_machine import machine_summary
from tests.report.test_sections import many_cells, over_time_document
from torchscale.analysis.summary.result_set import result_set
from torchscale.analysis.summary.run import summarize
from torchscale.features.compare.analysis.compare import compare
from torchscale.features.compare.sections.document import ComparisonReport, comparison_document
from torchscale.report.build import build_document
from torchscale.report.document import Document
from torchscale.report.formats.html import render_html


def comparison() -> Document:
    side = result_set(summarize(mixed_run()), "before")
    pair = compare(side, side.model_copy(update={"name": "after"}))
    return comparison_document(ComparisonReport((pair,), (), ("before", "after")))


DOCUMENTS: dict[str, Callable[[], Document]] = {
    "some cells": lambda: build_document(summarize(mixed_run()), price=2.5),
    "many cells": lambda: build_document(many_cells(10 if WHOLE else 2)),
    "the machine": lambda: build_document(machine_summary()),
    "over time": over_time_document,
    "hostile": lambda: build_document(summarize(hostile_run())),
    "a comparison": comparison,
}


@pytest.mark.parametrize("what", DOCUMENTS)
def test_nothing_stands_in_the_way_of_a_reader(browser: Browser, tmp_path: Path, what: str) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(DOCUMENTS[what]()))
    for scheme, width in (("light", 1280), ("dark", 390)):
        page = browser.new_page(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if scheme == "dark" else "light",
            bypass_csp=True,  # the checker is a script of its own
        )
        page.goto(path.as_uri())
        for state in (
            ("folded", "unfolded") if WHOLE else ("unfolded",)
        ):  # which shows all that folded shows, and more
            if state == "unfolded":
                page.evaluate("dispatchEvent(new Event('beforeprint'))")
            found = Axe().run(page).response["violations"]
            told = [(one["id"], one["impact"], one["nodes"][0]["html"][:200]) for one in found]
            assert told == [], f"{scheme}, {width} wide, {state}"
        page.close()


def test_the_checker_sees_what_is_wrong(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content(
        "<html lang=en><title>x</title><main><h1>x</h1><img src='data:,'><input></main></html>"
    )
    assert {"image-alt", "label"} <= {one["id"] for one in Axe().run(page).response["violations"]}
    page.close()
