"""Lines between those of a program: on a terminal as a small model of one shows it."""

from __future__ import annotations

import fcntl
import io
import os
import select
import struct
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import pytest

from torchscale.features.watch.whole_lines import write_line

COLUMNS = 40


@contextmanager
def terminal(columns: int = COLUMNS) -> Iterator[tuple[int, TextIO]]:
    """What a program writes to, and the other end."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(slave, "w") as stream:
        yield master, stream
    os.close(master)


def shown(master: int) -> str:
    """All that was written: one read gives a part."""
    parts = []
    while select.select([master], [], [], 0.2)[0]:
        parts.append(os.read(master, 4096))
    return b"".join(parts).decode()


def screen(written: str) -> list[str]:
    """Rows of a terminal that wraps: the last column is left when the next character comes."""
    rows, column = [[" "] * COLUMNS], 0
    for character in written:
        if character == "\r":
            column = 0
        elif character == "\n":
            rows.append([" "] * COLUMNS)
        else:
            if column == COLUMNS:
                rows.append([" "] * COLUMNS)
                column = 0
            rows[-1][column] = character
            column += 1
    return ["".join(row).rstrip() for row in rows]


@pytest.mark.parametrize(
    ("before", "rows"),
    [
        ("", ["ours"]),
        ("a line\n", ["a line", "ours"]),
        ("12%|##", ["12%|##", "ours"]),
        ("#" * COLUMNS, ["#" * COLUMNS, "ours"]),
        ("#" * (COLUMNS - 1), ["#" * (COLUMNS - 1), "ours"]),
        ("a line\n\r50%|#####", ["a line", "50%|#####", "ours"]),
    ],
)
def test_what_stands_there_stays_and_the_line_has_a_row_of_its_own(
    before: str, rows: list[str]
) -> None:
    with terminal() as (master, stream):
        stream.write(before)
        stream.flush()
        write_line("ours", stream)
        stream.write("\r75%|###")
        stream.flush()
        assert screen(shown(master)) == [*rows, "75%|###"]


def test_a_long_line_is_broken_between_words() -> None:
    with terminal() as (master, stream):
        write_line("torchscale: rank 1 arrives 10.2 ms late at the collective", stream)
        assert screen(shown(master))[:2] == [
            "torchscale: rank 1 arrives 10.2 ms late",
            "at the collective",
        ]


def test_a_line_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the program writes meanwhile comes before it or after it."""
    written: list[bytes] = []

    class Raw(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            written.append(bytes(data))  # type: ignore[call-overload]
            return len(written[-1])

        def isatty(self) -> bool:
            return True

        def fileno(self) -> int:
            return 2

    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((200, 50)))
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())
    stream = io.TextIOWrapper(io.BufferedWriter(Raw()), "utf-8", line_buffering=True)
    write_line("torchscale: " + "·" * 300, stream)
    assert len(written) == 1


def test_in_a_log_and_on_a_terminal_that_does_not_wrap_it_begins_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = io.StringIO()
    log.write("half a li")
    write_line("ours", log)
    assert log.getvalue() == "half a li\nours\n"
    monkeypatch.setenv("TERM", "dumb")
    with terminal() as (master, stream):
        write_line("ours", stream)
        assert shown(master) == "\r\nours\r\n"


def test_from_the_background_of_a_shell_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for group, written in ((os.getpgrp() + 1, ""), (os.getpgrp(), "ours")):
        monkeypatch.setattr(os, "tcgetpgrp", lambda _, group=group: group)
        with terminal() as (master, stream):
            write_line("ours", stream)
            stream.write(".")
            stream.flush()
            assert shown(master).strip(" \r\n.") == written


def test_texts_of_programs_steer_no_terminal() -> None:
    log = io.StringIO()
    write_line("a\x1b[2Jb", log)
    assert log.getvalue() == "\na\ufffd[2Jb\n"


def test_a_stream_that_is_gone_is_no_error() -> None:
    closed = io.StringIO()
    closed.close()
    write_line("ours", closed)
    read, write = os.pipe()
    os.close(read)
    stream = os.fdopen(write, "w")
    write_line("ours", stream)
    with pytest.raises(BrokenPipeError):
        stream.close()
