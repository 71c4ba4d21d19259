"""The live page: it follows a run, and shows nothing but the report."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.factories import launch_record, run, trained
from torchscale.errors import MachineError
from torchscale.report.server import LivePage, make_server
from torchscale.run.serve import RunPage
from torchscale.store.lock import locked_folder
from torchscale.store.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run of two cells of which none has been measured."""
    return RunFolder.create(tmp_path / "results", run({}).experiment)


@pytest.fixture
def port(folder: RunFolder) -> Iterator[int]:
    with make_server(LivePage(RunPage(folder.path)), "127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield int(server.server_address[1])
        server.shutdown()
        thread.join(10)


def finish(folder: RunFolder, number: int) -> None:
    cell = trained(folder.experiment.plan[number])
    folder.begin_launch(cell, 0)
    folder.finish_launch(cell, launch_record(cell))


def get(port: int, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request(method, path, headers=headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    return response.status, text


def test_the_page_and_its_state_follow_the_directory(folder: RunFolder, port: int) -> None:
    status, before = get(port, "/")
    assert status == 200
    assert "Nothing has been measured yet" in before
    assert "connect-src &#39;self&#39;" in before
    version = json.loads(get(port, "/state")[1])["version"]
    assert f'data-version="{version}"' in before
    finish(folder, 0)
    assert json.loads(get(port, "/state")[1])["version"] != version
    assert "1 of 2 cells so far" in get(port, "/")[1]


def test_what_runs_is_told(folder: RunFolder, port: int) -> None:
    cell = trained(folder.experiment.plan[0])
    (folder.begin_launch(cell, 0) / "progress.jsonl").write_text('{"phase":"measuring","steps":40}\n')
    assert json.loads(get(port, "/state")[1])["running"] == "", "no command holds the folder"
    with locked_folder(folder.path):
        told = "launch 1 of 2: tiny ResNet, 1 CPU rank, batch 8: measuring, 40 steps"
        assert json.loads(get(port, "/state")[1])["running"] == told
        for strange in ("[1]\n", "[" * 5000, "\0"):
            (folder.launch_directory(cell, 0) / "progress.jsonl").write_text(strange)
            assert json.loads(get(port, "/state")[1])["running"].endswith("starting")


def test_a_head_request_gets_the_length_alone(port: int) -> None:
    assert get(port, "/", method="HEAD") == (200, "")


@pytest.mark.parametrize("path", ["/experiment.json", "/../experiment.json", "/cells", "/?x", "/etc/passwd"])
def test_no_file_is_served(port: int, path: str) -> None:
    assert get(port, path) == (404, "not found")


def test_pages_of_others_cannot_read_it(port: int) -> None:
    """A name of theirs that leads to this address is how they would."""
    assert get(port, "/", Host="evil.example")[0] == 403
    assert get(port, "/state", Host=f"evil.example:{port}")[0] == 403
    assert get(port, "/state", Host=f"localhost:{port}")[0] == 200


def test_nothing_can_be_sent(port: int) -> None:
    assert get(port, "/", method="POST")[0] == 501
    assert get(port, "/", method="DELETE")[0] == 501


def test_a_port_that_is_taken_is_a_clear_error(folder: RunFolder, port: int) -> None:
    with pytest.raises(MachineError, match=f"cannot listen on 127.0.0.1:{port}"):
        make_server(LivePage(RunPage(folder.path)), "127.0.0.1", port)


def test_an_open_page_loads_itself_again_and_keeps_what_was_chosen(
    browser: Browser, folder: RunFolder, port: int
) -> None:
    page = browser.new_page()
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(f"http://127.0.0.1:{port}/")
    page.get_by_text("Live. Nothing is being measured.").wait_for()
    page.get_by_role("heading", name="All cells").click()
    table = page.get_by_role("table", name="All cells")
    for _ in range(2):
        table.get_by_role("button", name="Model").click()
    page.locator("section[aria-labelledby=cells]").get_by_label("Filter").fill("waiting")
    finish(folder, 0)
    page.get_by_text("1 of 2 cells so far").wait_for()
    # The words at the top are there before the scripts at the end of the page have run.
    expect(page.locator("section[aria-labelledby=cells]").get_by_label("Filter")).to_have_value("waiting")
    expect(page.locator("section[aria-labelledby=cells]").get_by_label("Filter")).to_be_focused()
    expect(page.get_by_role("status").filter(has_text="1 of 2 rows")).to_be_visible()
    expect(table.get_by_role("columnheader", name="Model")).to_have_attribute("aria-sort", "descending")
    assert said == []
    page.close()
