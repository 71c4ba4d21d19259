from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from torchscale.util import logs
from torchscale.util.logs import LogLimit, clean_logs, keep_log
from torchscale.util.secret_names import REDACTED


def test_a_log_is_kept_as_it_is(tmp_path: Path) -> None:
    log = tmp_path / "rank-0.stderr.log"
    log.write_bytes(b"step 1\nnot utf-8: \xff\n")
    before = log.stat()
    clean_logs(tmp_path)
    assert log.read_bytes() == b"step 1\nnot utf-8: \xff\n"
    assert (log.stat().st_ino, log.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_secrets_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "correct-horse-7")
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "stdout.log"
    log.write_bytes(b"using correct-horse-7 \xff\nand https://me:word@host/\n")
    clean_logs(tmp_path)
    assert (
        log.read_bytes()
        == f"using {REDACTED} ".encode() + b"\xff\n" + f"and https://{REDACTED}@host/\n".encode()
    )


def test_the_middle_of_a_huge_log_is_left_out_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "KEPT_BYTES", 20)
    log = tmp_path / "a.log"
    log.write_text("first line\n" + "x" * 1000 + "\nlast line\n")
    assert keep_log(log, log) == 1022
    text = log.read_text()
    assert text.startswith("first line")
    assert text.endswith("last line\n")
    assert "[torchscale: 1,002 bytes left out here]" in text


def test_what_was_printed_since_is_kept_by_itself(tmp_path: Path) -> None:
    log, kept = tmp_path / "all.log", tmp_path / "one.log"
    log.write_text("first\n")
    end = keep_log(log, kept)
    with log.open("a") as file:
        file.write("second\n")
    assert keep_log(log, kept, start=end) == 13
    assert kept.read_text() == "second\n"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("password=correct-horse-7\n")
    folder = tmp_path / "launch"
    folder.mkdir()
    (folder / "a.log").symlink_to(outside)
    clean_logs(folder)
    assert outside.read_text() == "password=correct-horse-7\n"


def write_use(file: BinaryIO, first: int, count: int) -> None:
    """``count`` lines of 1 KiB that begin with their number."""
    file.write(b"".join(f"{number:<1023}\n".encode() for number in range(first, first + count)))
    file.flush()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log 64 KiB are kept, and it is cut in pieces of 32 KiB and more."""
    monkeypatch.setattr(logs, "KEPT_BYTES", 2**16)
    monkeypatch.setattr(logs, "_CHUNK_BYTES", 2**15)


@pytest.mark.usefixtures("small")
def test_a_log_is_bounded_while_it_grows(tmp_path: Path) -> None:
    log = tmp_path / "stdout.log"
    with log.open("wb") as file:
        limit = LogLimit("*.log", directory=tmp_path)
        for first in range(0, 4000, 40):
            write_use(file, first, 40)
            limit.apply()
            assert log.stat().st_size == (first + 40) * 1024
            assert log.stat().st_blocks * 512 <= 2**16 + 2**15 + 40 * 1024 + 3 * 4096, (
                "kept, a piece, and what is new"
            )
    keep_log(log, log)
    lines = log.read_text().splitlines()
    assert [int(line) for line in (*lines[:32], *lines[-32:])] == [*range(32), *range(3968, 4000)]
    assert lines[33] == f"[torchscale: {3936 * 1024:,} bytes left out here]"


@pytest.mark.usefixtures("small")
def test_a_file_system_without_holes_keeps_the_beginning_and_what_comes_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_LIBC", None)
    log = tmp_path / "stdout.log"
    with log.open("wb") as file:
        limit = LogLimit("*.log", directory=tmp_path)
        for first in range(0, 4000, 40):
            write_use(file, first, 40)
            limit.apply()
            assert log.stat().st_blocks * 512 <= 2**16 + 2**15 + 40 * 1024 + 3 * 4096
        write_use(file, 4000, 8)
    keep_log(log, log)
    lines = log.read_text().splitlines()
    assert [int(line) for line in (*lines[:32], *lines[-8:])] == [*range(32), *range(4000, 4008)]
    assert "\0" not in log.read_text()
    assert "bytes left out here]" in lines[33]


@pytest.mark.usefixtures("small")
def test_what_was_printed_before_is_left_as_it_is(tmp_path: Path) -> None:
    """A group's log holds the output of earlier launches; what of this launch is kept begins after
    it."""
    log = tmp_path / "stdout.log"
    with log.open("wb") as file:
        write_use(file, 0, 300)
        limit = LogLimit("*.log", directory=tmp_path)
        write_use(file, 300, 300)
        limit.apply()
    keep_log(log, tmp_path / "kept.log", start=300 * 1024)
    lines = (tmp_path / "kept.log").read_text().splitlines()
    assert [int(line) for line in (*lines[:32], *lines[-32:])] == [
        *range(300, 332),
        *range(568, 600),
    ]
    assert [int(line) for line in log.read_bytes()[: 300 * 1024].splitlines()] == list(range(300))


@pytest.mark.usefixtures("small")
def test_new_logs_are_bounded_too_and_links_and_pipes_are_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "_SEARCH_SECONDS", 0.0)
    outside = tmp_path / "outside"
    outside.write_bytes(b"x" * 2**20)
    folder = tmp_path / "launch"
    folder.mkdir()
    limit = LogLimit("*.log", directory=folder)
    (folder / "link.log").symlink_to(outside)
    os.mkfifo(folder / "pipe.log")
    (folder / "new.log").write_bytes(b"x" * 2**20)
    limit.apply()
    assert outside.read_bytes() == b"x" * 2**20
    assert (folder / "new.log").stat().st_blocks * 512 < 2**17
    (folder / "new.log").unlink()
    limit.apply()
