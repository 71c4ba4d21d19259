"""Loops around the lines of a stack, from sources."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchscale.features.watch.hang.source_loops import outermost_loops
from torchscale.schema.launch.hang import StackFrame

SOURCE = """\
def train():
    begin()
    for epoch in range(3):
        for batch in loader:
            with context:
                step()
        evaluate()
    else:
        finish()
    match kind:
        case "a":
            while True:
                wait()
    for it in items:
        def inner():
            call()
        inner()
    end()

train()
"""
LOOPS: dict[int, tuple[int, int] | None] = {
    2: None, 3: (3, 9), 6: (3, 9), 7: (3, 9), 12: (12, 13), 13: (12, 13), 16: None, 17: (14, 17),
    18: None, 20: None,
}  # fmt: skip
"""Line → the outermost loop of its function. A rank that waits for its next batch is in the line
that begins the loop."""
LATER = 2e9
"""After any change of a file here, in seconds since the epoch."""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "home" / "train.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    return path


def frame(file: str, line: int) -> StackFrame:
    return StackFrame(file=file, line=line, function="f")


def test_the_outermost_loop_of_the_function_around_each_line(source: Path, tmp_path: Path) -> None:
    stack = [frame("/home/train.py", line) for line in LOOPS]
    assert dict(zip(LOOPS, outermost_loops(stack, tmp_path, LATER), strict=True)) == LOOPS
    assert outermost_loops([frame("<frozen runpy>", 198)], tmp_path, LATER) == (None,)


@pytest.mark.parametrize(
    "file", ["/home/gone.py", "train.py", "<string>", "/home", "/home/broken.py"]
)
def test_a_source_that_cannot_be_read_makes_all_unknown(
    source: Path, tmp_path: Path, file: str
) -> None:
    source.with_name("broken.py").write_text("for (")
    (tmp_path / "train.py").write_text(SOURCE)  # which a program that is elsewhere does not mean
    assert outermost_loops([frame("/home/train.py", 6), frame(file, 1)], tmp_path, LATER) == ()


def test_a_file_that_was_changed_since_the_start_is_not_what_runs(
    source: Path, tmp_path: Path
) -> None:
    os.utime(source, (1000.0, 1000.0))
    stack = [frame("/home/train.py", 6)]
    assert outermost_loops(stack, tmp_path, 1000.5) == ((3, 9),)
    assert outermost_loops(stack, tmp_path, 1000.0) == ((3, 9),)
    assert outermost_loops(stack, tmp_path, 999.5) == ()
