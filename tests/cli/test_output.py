"""What commands say while they work."""

from __future__ import annotations

import io
import re
import sys
import time

import pytest
from rich.console import Console
from rich.table import Table

from torchscale.cli import output
from torchscale.errors import UsageError
from torchscale.util import redaction


@pytest.fixture(autouse=True)
def fresh_output() -> None:
    output.configure_output(verbose=False, quiet=False)


def test_a_long_wait_says_so_in_a_log_and_a_short_one_does_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "FIRST_LINE_SECONDS", 0.05)
    monkeypatch.setattr(output, "_LINE_SECONDS", 0.1)
    with output.status("Looking"):
        time.sleep(0.5)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Looking …"
    assert lines[1].startswith("Looking … ")
    assert lines[1].endswith(" s")
    with output.status("Looking"):
        pass
    assert capsys.readouterr().err == ""


def test_quiet_says_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "FIRST_LINE_SECONDS", 0.01)
    output.configure_output(verbose=False, quiet=True)
    with output.status("Looking"):
        time.sleep(0.1)
    assert capsys.readouterr().err == ""
    output.configure_output(verbose=False, quiet=False)


def test_a_terminal_gets_a_spinner_with_the_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with output.status("Looking"):
        time.sleep(0.3)
        output.note("on the way")
        with output.status("inside"):
            pass
    shown = capsys.readouterr().err
    assert "Looking" in shown
    assert "0:00:00" in shown
    assert "on the way" in shown
    assert "inside" not in shown


def test_what_the_terminal_cannot_show_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    output.replace_unprintable()
    output.result_console().print("91 – 2 %")
    sys.stdout.flush()
    assert written.getvalue().decode("ascii") == "91 ? 2 %\n"


@pytest.mark.parametrize("rows", [1, 200])
def test_a_table_asks_once_what_is_secret(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """And not for each of its texts, of which a plan of 10,000 cells has 240,000."""
    asked = []

    def secrets() -> tuple[str, ...]:
        asked.append(1)
        return ("0123456789abcdef",)

    monkeypatch.setattr(redaction, "secret_values", secrets)
    console = output.result_console()
    table = Table("name")
    for number in range(rows):
        table.add_row(f"{number} 0123456789abcdef")
    with console.capture() as captured:
        console.print(table)
    assert len(asked) == 1
    assert captured.get().count("<redacted>") == rows


def test_a_secret_that_is_noted_between_two_lines_is_not_in_the_second() -> None:
    console = output.result_console()
    with console.capture() as captured:
        console.print("one n0ted-s3cret-value")
        redaction.note_values(["n0ted-s3cret-value"])
        console.print("two n0ted-s3cret-value")
    assert captured.get().split("\n")[:2] == ["one n0ted-s3cret-value", "two <redacted>"]


def terminal(columns: int) -> tuple[Console, io.StringIO]:
    shown = io.StringIO()
    return Console(file=shown, width=columns, force_terminal=True, color_system=None), shown


def test_messages_are_broken_between_words_on_a_terminal_and_whole_in_a_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "Failed: after against before: a loss of 25.0 % cannot be ruled out"
    console, shown = terminal(30)
    with output.live_console(console):
        output.note(text)
        output.print_error(UsageError("--model resnet1009: unknown model", hint="one of: resnet50"))
    assert shown.getvalue().splitlines() == [
        "Failed: after against before:",
        "a loss of 25.0 % cannot be",
        "ruled out",
        "error: --model resnet1009:",
        "unknown model",
        "hint: one of: resnet50",
    ]
    output.note(text)
    assert capsys.readouterr().err == f"{text}\n"


def test_a_spinner_stays_on_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    console, shown = terminal(40)
    monkeypatch.setattr(output, "message_console", lambda: console)
    with output.status(f"Reading the runs in /{'a-long-folder/' * 9}"):
        pass
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.getvalue())
    assert "…" in drawn and "0:00:00" in drawn
    assert all(len(line.strip("\r")) <= 40 for line in drawn.splitlines())


def test_tables_in_a_pipe_are_as_wide_as_a_log_shows_unless_columns_says_how_wide(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.isatty", lambda _: False)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert output.result_console().width == 120
    monkeypatch.setenv("COLUMNS", "93")
    assert output.result_console().width == 93
