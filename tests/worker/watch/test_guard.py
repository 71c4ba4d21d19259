"""What fails in the collector stays there, and says why in the folder of the job."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest

from torchscale.worker.watch import guard


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(guard, "_folder", str(tmp_path))
    monkeypatch.setattr(guard, "_told", 0)
    yield tmp_path


def _fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        RuntimeError("can't start new thread"),
        MemoryError(),
        RecursionError("deep"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_kept_from_the_program_and_told(error: Exception, folder: Path) -> None:
    assert guard.guarded(_fail, error) is None

    told = (folder / f"problem-{os.getpid()}").read_text()
    assert told == f"{type(error).__name__}: {error}\n"


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3)], ids=["Ctrl-C", "exit"])
def test_what_a_handler_of_the_program_raises_is_the_programs(
    error: BaseException, folder: Path
) -> None:
    with pytest.raises(type(error)):
        guard.guarded(_fail, error)
    assert list(folder.iterdir()) == []


def test_few_reasons_are_left(folder: Path) -> None:
    for number in range(10):
        guard.guarded(_fail, ValueError(str(number)))

    pid = os.getpid()
    names = [f"problem-{pid}", f"problem-{pid}.1", f"problem-{pid}.2"]
    assert sorted(path.name for path in folder.iterdir()) == names


@pytest.mark.parametrize("kind", ["pipe", "link", "folder", "file"])
def test_what_is_in_the_place_of_a_reason_is_left_as_it_is(folder: Path, kind: str) -> None:
    place, other = folder / f"problem-{os.getpid()}", folder / "other"
    other.write_text("mine")
    if kind == "pipe":
        os.mkfifo(place)
    elif kind == "link":
        place.symlink_to(other)
    elif kind == "folder":
        place.mkdir()
    else:
        place.write_text("mine")

    guard.guarded(_fail, ValueError("no"))
    assert other.read_text() == "mine"
    assert kind != "file" or place.read_text() == "mine"


def test_a_folder_that_is_gone_is_no_error(folder: Path) -> None:
    folder.rmdir()
    guard.guarded(_fail, ValueError("no"))


def test_a_frame_of_ours_is_not_in_the_traceback_of_the_program() -> None:
    def ours() -> None:
        try:
            _fail(ValueError("the program's"))
        except BaseException as error:
            guard.unseen(error)
            raise

    with pytest.raises(ValueError, match="the program's") as caught:
        ours()
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert names[-1] == "_fail"
    assert ("ours" in names) is (sys.version_info < (3, 11))  # 3.10 puts it back
