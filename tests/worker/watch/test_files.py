"""Files of a rank, also on a full disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from torchscale.worker.watch import files


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
