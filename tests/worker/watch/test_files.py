"""Files of a rank, also on a full disk."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from torchscale.worker.watch import files
from torchscale.worker.watch.files import append_whole, claim, overwrite, replace_whole


def test_what_a_full_disk_had_no_room_for_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = files.Segments(tmp_path, "marks")
    segments.add(b"a" * 48)
    segments.write()

    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as context:
        context.setattr(files, "append_whole", full)
        segments.add(b"b" * 48)
        with pytest.raises(OSError, match="No space"):
            segments.write()
        for _ in range(50):
            segments.add(b"c" * 48_000)
    segments.write()

    content = (tmp_path / "marks-000001.bin").read_bytes()
    assert content.startswith(b"a" * 48 + b"c")
    assert len(content) == 48 + files._UNWRITTEN_BYTES
    assert segments.has_lost


def test_a_reason_fits_where_a_full_disk_takes_no_new_file(tmp_path: Path) -> None:
    path = tmp_path / "rank.json"
    path.write_text('{"problem": ""}'.ljust(100))
    files.overwrite(path, '{"problem": "full"}')

    assert json.loads(path.read_text()) == {"problem": "full"}
    assert path.stat().st_size == 100


def overwrite_text(path: Path, content: bytes) -> None:
    overwrite(path, content.decode())


def replace_text(path: Path, content: bytes) -> None:
    replace_whole(path, content.decode())


@pytest.mark.parametrize("write", [append_whole, overwrite_text, replace_text])
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_file_of_this_rank_is_not_written_to(
    tmp_path: Path, kind: str, write: Callable[[Path, bytes], None]
) -> None:
    """A pipe would block, and a link leads to a file of others."""
    other = tmp_path / "other"
    other.write_bytes(b"mine")
    for name in ("place", "place.part"):
        place = tmp_path / name
        if kind == "pipe":
            os.mkfifo(place)
        elif kind == "link":
            place.symlink_to(other)
        else:
            place.mkdir()

    with pytest.raises(OSError, match=r"."):
        write(tmp_path / "place", b"ours")
    assert other.read_bytes() == b"mine"


def test_the_folder_of_a_job_is_not_made(tmp_path: Path) -> None:
    """A process that has another root would make it there."""
    with pytest.raises(FileNotFoundError):
        claim(tmp_path / "gone" / "ranks", 0, 0)
    assert list(tmp_path.iterdir()) == []


def test_folders_that_are_all_taken_end_the_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_MOST_ATTEMPTS", 3)
    for attempt in range(3):
        assert claim(tmp_path, 0, 0).name == f"0.{attempt}"
    with pytest.raises(FileExistsError):
        claim(tmp_path, 0, 0)
