"""The HTML report in a real browser: it draws, asks nothing of anyone, sorts and filters."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.factories import cells, failed_record, launch_record, run
from tests.report.test_build import hostile_run, mixed_run
from tests.report.test_machine import machine_summary
from torchscale.analysis.summary.run import summarize
from torchscale.report.build import build_document
from torchscale.report.formats.html import render_html
from torchscale.schema.state import State


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_draws_sorts_and_filters_without_a_request_or_an_error(
    browser: Browser, tmp_path: Path, scheme: str
) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(build_document(summarize(mixed_run()))))
    page = browser.new_page(color_scheme="dark" if scheme == "dark" else "light")
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(path.as_uri())
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".plot").count() == page.locator(".plot svg").count() == 6
    assert asked == [path.as_uri()]

    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.get_by_role("heading", name="All cells").click()
    rows = page.locator("table.searchable tbody tr:visible")
    for words, count in {
        "oom 16": 1, "ranks:2": 2, "devices:2": 2, "gpus:2": 2, "cpu:2": 2,
        "CPU ranks:2 batch:8": 1, "rank:1 state:ok": 2, "": 6,
    }.items():  # fmt: skip
        page.get_by_label("Filter").fill(words)
        assert rows.count() == count, words
        assert page.get_by_role("status").inner_text() == f"{count} of 6 rows"
    page.get_by_label("Filter").fill("colour:red")
    assert (
        page.get_by_role("status")
        .inner_text()
        .startswith('0 of 6 rows; no column "colour" (there are: model, batch, ')
    )
    page.get_by_label("Filter").fill("")

    heading = page.get_by_role("button", name="samples/s")
    heading.click()
    rates = [rows.nth(index).locator("td").nth(4).inner_text().split()[0] for index in range(6)]
    assert rates == ["79.6", "129", "160", "–", "–", "–"]
    heading.click()
    rates = [rows.nth(index).locator("td").nth(4).inner_text().split()[0] for index in range(6)]
    assert rates == ["160", "129", "79.6", "–", "–", "–"]
    assert said == []
    page.close()


@pytest.mark.parametrize("touch", [False, True])
def test_a_chart_tells_the_value_that_is_pointed_at(
    browser: Browser, tmp_path: Path, touch: bool
) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(build_document(summarize(mixed_run()))))
    width = 390 if touch else 1280
    page = browser.new_page(viewport={"width": width, "height": 800}, has_touch=touch)
    page.goto(path.as_uri())
    chart = page.locator(".first-chart .plot")
    chart.scroll_into_view_if_needed()
    at_two = "svg g[clip-path] use[x]"
    marks = chart.locator(at_two)
    box = marks.nth(1).bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    if touch:
        page.touchscreen.tap(*middle)
    else:
        page.mouse.move(*middle)
    tip = page.locator(".tip")
    assert tip.inner_text() == "tiny ResNet: 80.72 at 2"
    shown = tip.bounding_box()
    assert shown is not None
    assert 0 <= shown["x"] <= shown["x"] + shown["width"] <= width
    if not touch:
        page.mouse.move(1, 1)
        assert tip.is_hidden()
    page.close()


def test_charts_need_no_script(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(build_document(summarize(mixed_run()))))
    page = browser.new_page(java_script_enabled=False)
    page.goto(path.as_uri())
    assert page.locator(".first-chart .plot svg text", has_text="efficiency, %").is_visible()
    page.close()


def test_hostile_text_runs_nothing(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(build_document(summarize(hostile_run()))))
    page = browser.new_page()
    said: list[str] = []
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    assert said == []
    page.close()


_CLIPPED = """[...document.querySelectorAll(".scroll")]
  .filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.getAttribute("aria-label"))"""


@pytest.mark.parametrize("width", [390, 1280, 1440, 1920])
def test_no_table_is_cut_off_at_any_width(browser: Browser, tmp_path: Path, width: int) -> None:
    """Three launches that differ, so that efficiencies have intervals and cells have warnings; long
    reasons; the machine's tables."""
    plan = cells(batch_sizes=[8, 16])
    launches = {
        cell.id: [launch_record(cell, number, [1.0 + number / 4, 1.4] * 5) for number in range(3)]
        for cell in plan[:3]
    }
    launches[plan[3].id] = [
        failed_record(plan[3], State.CRASHED, "ValueError: " + "a_long_reason_without_spaces" * 9)
    ]
    trained = build_document(
        summarize(run(launches, batch_sizes=[8, 16], benchmark={"repeats": 3})), price=2.5
    )
    for number, document in enumerate((trained, build_document(machine_summary()))):
        path = tmp_path / f"{number}.html"
        path.write_text(render_html(document))
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.goto(path.as_uri())
        page.get_by_role("button", name="Unfold all").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(_CLIPPED) == []
        page.close()


def test_sections_are_folded_and_open_by_link_button_and_print(
    browser: Browser, tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(build_document(summarize(mixed_run()))))
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(path.as_uri())
    folds = page.locator("details.fold")
    opened = page.locator("details.fold[open]")
    assert folds.count() > 5
    assert opened.count() == 0
    assert page.evaluate("document.documentElement.scrollHeight") <= 5 * 800
    page.get_by_role("link", name="Scales?").click()
    page.wait_for_selector("details.fold[open] #scaling")
    page.mouse.wheel(0, 3000)
    assert page.get_by_role("navigation", name="Report").is_visible(), (
        "it stays at the top of the window"
    )
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert opened.count() == folds.count()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert opened.count() == 1
    page.get_by_role("button", name="Unfold all").click()
    assert opened.count() == folds.count()
    page.get_by_role("button", name="Fold all").click()
    assert opened.count() == 0
    page.goto(f"{path.as_uri()}#method")
    page.wait_for_selector("details.fold[open] #method")
    page.close()


def test_without_scripts_every_figure_is_one_click_away(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(build_document(summarize(mixed_run()))))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert page.get_by_text("Scales to 2 CPU ranks at 80.7").is_visible()
    page.get_by_role("heading", name="All cells").click()
    rows = page.locator("section[aria-labelledby=cells] tbody tr:visible")
    assert rows.count() == 6
    context.close()
