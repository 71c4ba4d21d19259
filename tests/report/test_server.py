"""The live page: it follows a run, and shows nothing but the report."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.factories import launch_record, run, trained
from tests.features.export.formats.exposition import parse
from torchscale.errors import MachineError
from torchscale.read.serve import RunPage
from torchscale.report import server
from torchscale.report.server import LivePage, make_server
from torchscale.store.lock import locked_folder
from torchscale.store.run_folder import RunFolder


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A run of two cells of which none has been measured."""
    return RunFolder.create(tmp_path / "results", run({}).experiment)


@pytest.fixture
def port(folder: RunFolder) -> Iterator[int]:
    with make_server(LivePage(RunPage(folder.path)), "127.0.0.1", 0) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield int(listening.server_address[1])
        listening.shutdown()
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


def test_prometheus_can_scrape_the_figures(folder: RunFolder, port: int) -> None:
    finish(folder, 0)
    page = RunPage(folder.path)
    for accepted, kind, text in (
        ("*/*", "text/plain; version=0.0.4; charset=utf-8", page.metrics("1", openmetrics=False)),
        (
            "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
            page.metrics("1", openmetrics=True),
        ),
    ):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", "/metrics", headers={"Accept": accepted})
        response = connection.getresponse()
        assert (response.status, response.getheader("Content-Type")) == (200, kind)
        assert response.read().decode() == text
        connection.close()
        samples = parse(text, openmetrics="openmetrics" in kind)
        assert {sample.labels["run"] for sample in samples} == {"results"}
        assert (
            len([sample for sample in samples if sample.name == "torchscale_samples_per_second"])
            == 1
        )
    assert get(port, "/metrics", Host="evil.example")[0] == 403


def test_the_figures_follow_the_directory(folder: RunFolder, port: int) -> None:
    assert "torchscale_samples_per_second{" not in get(port, "/metrics")[1]
    finish(folder, 0)
    assert get(port, "/metrics")[1].count("torchscale_samples_per_second{") == 1
    finish(folder, 1)
    assert get(port, "/metrics")[1].count("torchscale_samples_per_second{") == 2


def test_before_the_sweep_there_are_no_figures(tmp_path: Path) -> None:
    page = RunPage(tmp_path / "later")
    assert page.metrics(page.version(), openmetrics=True) == "# EOF\n"


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
    (folder.begin_launch(cell, 0) / "progress.jsonl").write_text(
        '{"phase":"measuring","steps":40}\n'
    )
    assert json.loads(get(port, "/state")[1])["running"] == "", "no command holds the folder"
    with locked_folder(folder.path):
        told = "launch 1 of 2: tiny ResNet, 1 CPU rank, batch 8: measuring, 40 steps"
        assert json.loads(get(port, "/state")[1])["running"] == told
        for strange in ("[1]\n", "[" * 5000, "\0"):
            (folder.launch_directory(cell, 0) / "progress.jsonl").write_text(strange)
            assert json.loads(get(port, "/state")[1])["running"].endswith("starting")


def test_a_head_request_gets_the_length_alone(port: int) -> None:
    assert get(port, "/", method="HEAD") == (200, "")


@pytest.mark.parametrize(
    "path", ["/experiment.json", "/../experiment.json", "/cells", "/?x", "/etc/passwd"]
)
def test_no_file_is_served(port: int, path: str) -> None:
    assert get(port, path) == (404, "not found")


def test_pages_of_others_cannot_read_it(port: int) -> None:
    """A name of theirs that leads to this address is how they would."""
    assert get(port, "/", Host="evil.example")[0] == 403
    assert get(port, "/state", Host=f"evil.example:{port}")[0] == 403
    assert get(port, "/state", Host=f"localhost:{port}")[0] == 200


@pytest.mark.parametrize("name", ["LOCALHOST", "[::1]:80", "127.0.0.1:1", "127.0.0.1"])
def test_names_of_this_machine(port: int, name: str) -> None:
    assert get(port, "/state", Host=name)[0] == 200


@pytest.mark.parametrize(
    "name",
    ["", "[::1].evil", "[::1]:80.evil", "[::1", "localhost:80.evil", "localhost.evil", "::1"],
)
def test_names_that_only_begin_like_those_of_this_machine(port: int, name: str) -> None:
    assert get(port, "/state", Host=name)[0] == 403


@pytest.mark.parametrize(
    "request_line",
    [
        "GET /../../etc/passwd",
        "GET //etc/passwd",
        "GET /%2e%2e/experiment.json",
        "GET http://x/",
        "GET *",
    ],
)
def test_no_spelling_of_a_path_leads_to_a_file(port: int, request_line: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(f"{request_line} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        answer = client.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.0 404")
    assert answer.endswith(b"\r\n\r\nnot found")


@pytest.mark.parametrize(
    "sent",
    [
        b"\0\xff\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n"
        + b"A:"
        + b"x" * 70_000
        + b"\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused(port: int, sent: bytes) -> None:
    with (
        socket.create_connection(("127.0.0.1", port), timeout=30) as client,
        contextlib.suppress(ConnectionError),
    ):
        client.sendall(sent)
        answer = client.makefile("rb").read()
        assert any(
            told in answer for told in (b"HTTP/1.0 4", b"Error code: 400", b"Error code: 505")
        )
    assert get(port, "/state")[0] == 200


def test_a_client_that_goes_away_leaves_no_word(
    port: int, capfd: pytest.CaptureFixture[str]
) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )  # closes by a reset
            client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(b"GET / HT")
    assert get(port, "/state")[0] == 200
    assert capfd.readouterr().err == ""


def test_a_client_that_sends_byte_by_byte_is_hung_up_on(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_REQUEST_SECONDS", 0.5)
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.settimeout(0.05)
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                client.sendall(b"G")
                if client.recv(100) == b"":
                    break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        assert time.monotonic() < end, "the server went on reading"


def test_very_many_clients_take_no_more_threads_than_there_are(port: int) -> None:
    before = threading.active_count()
    clients = [
        socket.create_connection(("127.0.0.1", port), timeout=30)
        for _ in range(3 * server._MAX_CONNECTIONS)
    ]
    try:
        assert clients[0].recv(1) == b"", "closed for those that came later"
        assert get(port, "/state")[0] == 200, "and others are answered meanwhile"
        assert threading.active_count() - before <= server._MAX_CONNECTIONS
    finally:
        for client in clients:
            client.close()
    deadline = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert get(port, "/state")[0] == 200


@pytest.mark.parametrize(
    ("host", "name"), [("::1", "[::1]"), ("::", "some.name"), ("0.0.0.0", "some.name")]
)
def test_other_addresses(folder: RunFolder, host: str, name: str) -> None:
    if ":" in host and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    with make_server(LivePage(RunPage(folder.path)), host, 0) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        port = listening.server_address[1]
        with socket.create_connection(
            ("::1" if ":" in host else "127.0.0.1", port), timeout=30
        ) as client:
            client.sendall(f"GET /state HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n".encode())
            assert client.makefile("rb").readline().startswith(b"HTTP/1.0 200")
        listening.shutdown()
        thread.join(10)


def has_ipv6() -> bool:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        return False
    return True


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
    expect(page.locator("section[aria-labelledby=cells]").get_by_label("Filter")).to_have_value(
        "waiting"
    )
    expect(page.locator("section[aria-labelledby=cells]").get_by_label("Filter")).to_be_focused()
    expect(page.get_by_role("status").filter(has_text="1 of 2 rows")).to_be_visible()
    expect(table.get_by_role("columnheader", name="Model")).to_have_attribute(
        "aria-sort", "descending"
    )
    assert said == []
    page.close()
