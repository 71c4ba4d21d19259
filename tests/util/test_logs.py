from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.util import logs
from torchscale.util.logs import clean_logs, keep_log
from torchscale.util.redaction import REDACTED


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
    assert log.read_bytes() == f"using {REDACTED} ".encode() + b"\xff\n" + f"and https://{REDACTED}@host/\n".encode()


def test_the_middle_of_a_huge_log_is_left_out_with_a_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
