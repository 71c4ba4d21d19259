"""``torchscale history`` through the whole program."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.program import torchscale
from tests.factories import VERSIONS
from tests.histories import write_night

NIGHTS = 14


def nights(directory: Path, slower: float = 1.1) -> Path:
    """Seven nights, then seven with another driver and steps that take longer."""
    for number in range(NIGHTS):
        late = number >= NIGHTS // 2
        versions = VERSIONS.model_copy(update={"driver": "570.1" if late else "550.54"})
        write_night(directory / "results", number, slower if late else 1.0, versions=versions)
    return directory


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with ``results/night-N``."""
    return nights(tmp_path_factory.mktemp("nights"))


def document(directory: Path, *arguments: str) -> dict[str, Any]:
    """The JSON of a call that passes."""
    done = torchscale(directory, "history", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def test_the_table_and_what_changed(measured: Path) -> None:
    done = torchscale(measured, "history")
    assert done.returncode == 0, done.stderr
    assert re.search(r"2026-01-08 03:00 .* worse +7 \| 7", done.stdout)
    assert "night-6 → night-7" in done.stdout
    assert "driver: 550.54 → 570.1" in done.stdout
    assert "\ntorchscale compare --why results/night-6 results/night-7\n" in done.stdout
    assert "1 of 1 series is worse now" in done.stdout
    assert not list(measured.glob("*.sqlite"))  # nothing is kept without --db


def test_json_holds_every_run_and_the_change(measured: Path) -> None:
    content = document(measured)
    assert len(content["runs"]) == NIGHTS
    (trend,) = content["trends"]
    assert [point["run"] for point in trend["points"]] == list(range(NIGHTS))
    assert all(point["low"] < point["level"] < point["high"] for point in trend["points"])
    (change,) = trend["changes"]
    assert change["ratio"] == pytest.approx(1 / 1.1, rel=0.01)
    assert (change["last_before"], change["first_after"], change["worse"]) == (6, 7, True)
    assert change["differences"] == [{"what": "driver", "before": "550.54", "after": "570.1"}]
    assert trend["regression"] is True


def test_exit_code_only_if_asked_for(measured: Path) -> None:
    assert torchscale(measured, "history", "results").returncode == 0
    failed = torchscale(measured, "history", "results", "--fail-on-regression")
    assert failed.returncode == 1
    assert failed.stderr.startswith("Failed: 1 of 1 series is worse now; most: tiny ResNet")
    assert (
        torchscale(measured, "history", "--fail-on-regression", "--threshold", "15%").returncode
        == 0
    )
    wrong = torchscale(measured, "history", "--threshold", "much")
    assert (wrong.returncode, "--threshold much" in wrong.stderr) == (2, True)


def test_a_file_is_kept_read_without_folders_and_grows(tmp_path: Path) -> None:
    nights(tmp_path)
    first = torchscale(tmp_path, "history", "results", "--db", "torchscale.sqlite")
    assert first.returncode == 0, first.stderr
    assert f"torchscale.sqlite: {NIGHTS} runs added, 0 known" in first.stderr
    alone = document(tmp_path, "--db", "torchscale.sqlite")
    of_folders = document(tmp_path)
    lines = [content["trends"][0]["changes"][0].pop("commands") for content in (alone, of_folders)]
    assert alone["trends"] == of_folders["trends"]
    assert lines == [
        ["torchscale compare --why night-6 night-7 --history torchscale.sqlite"],
        ["torchscale compare --why results/night-6 results/night-7"],
    ]
    for (line,) in lines:
        found = torchscale(tmp_path, *shlex.split(line)[1:], "--fail-on", "never")
        assert found.returncode == 0, found.stderr
        assert "night-6: 3 of 3 launches have no parts" in found.stdout
    write_night(tmp_path / "results", NIGHTS, 1.1)
    more = torchscale(tmp_path, "history", "results", "--db", "torchscale.sqlite")
    assert f"1 runs added, {NIGHTS} known" in more.stderr
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["torchscale.sqlite"]


def test_the_page(measured: Path, tmp_path: Path) -> None:
    page = tmp_path / "history.html"
    done = torchscale(measured, "history", "--html", str(page))
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "driver: 550.54 → 570.1" in text
    assert "night-6 → night-7" in text
    assert "torchscale compare --why results/night-6 results/night-7" in text
    assert "1 of 1 series is worse now" in text


def test_too_few_runs_are_said(tmp_path: Path) -> None:
    for number in range(3):
        write_night(tmp_path / "results", number)
    done = torchscale(tmp_path, "history")
    assert done.returncode == 0, done.stderr
    assert (
        "Too few runs to find a change: 3 runs in the longest series; 10 are needed" in done.stdout
    )


def test_wrong_input_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("notes")
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE a (b)")
    for arguments, expected in (
        ((), "results is not a directory"),
        (("empty",), "no run folder in empty"),
        (("--db", "absent.sqlite"), "no history absent.sqlite"),
        (("--db", "notes.txt"), "notes.txt is not a history that torchscale wrote"),
        (("--db", "other.sqlite"), "other.sqlite is not a history that torchscale wrote"),
        (("empty", "--metric", "luck"), "luck"),
    ):
        done = torchscale(tmp_path, "history", *arguments)
        assert done.returncode == 2, arguments
        assert expected in done.stderr
        assert "Traceback" not in done.stderr
        assert len(done.stderr.strip().splitlines()) <= 2


def test_only_flags_are_accepted(tmp_path: Path) -> None:
    done = torchscale(tmp_path, "history", "--accept", "missing")
    assert (done.returncode, done.stderr) == (2, "error: --accept missing: expected flags\n")
