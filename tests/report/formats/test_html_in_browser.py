"""The HTML report in a real browser: it draws, asks nothing of anyone, sorts and filters."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.report.test_build import hostile_run, mixed_run
from torchscale.analysis.summary.run import summarize
from torchscale.report.build import build_document
from torchscale.report.formats.html import render_html


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
    page.wait_for_selector(".plot .main-svg")
    assert 0 < page.locator(".plot.js-plotly-plot").count() < 6, "only what is near the window is drawn"
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator(".plot").count() == page.locator(".plot.js-plotly-plot").count() == 6
    assert asked == [path.as_uri()]

    rows = page.locator("table.searchable tbody tr:visible")
    page.get_by_label("Filter").fill("oom 16")
    assert rows.count() == 1
    assert page.get_by_role("status").inner_text() == "1 of 6 rows"
    page.get_by_label("Filter").fill("")
    assert rows.count() == 6

    heading = page.get_by_role("button", name="samples/s")
    heading.click()
    rates = [rows.nth(index).locator("td").nth(5).inner_text() for index in range(6)]
    assert rates == ["79.6", "129", "160", "–", "–", "–"]
    heading.click()
    rates = [rows.nth(index).locator("td").nth(5).inner_text() for index in range(6)]
    assert rates == ["160", "129", "79.6", "–", "–", "–"]
    assert said == []
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
    page.wait_for_selector(".plot .main-svg")
    assert said == []
    page.close()


def test_a_phone_sees_no_sideways_scroll(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(render_html(build_document(summarize(mixed_run()))))
    page = browser.new_page(viewport={"width": 390, "height": 800})
    page.goto(path.as_uri())
    page.wait_for_selector(".plot .main-svg")
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    page.close()
