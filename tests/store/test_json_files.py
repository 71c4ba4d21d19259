"""Files of one JSON object per line."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.schema.launch.progress import Progress
from torchscale.store import json_files
from torchscale.store.json_files import read_lines

FIRST, SECOND = (Progress(phase="measuring", steps=steps) for steps in (1, 2))


def written(path: Path) -> Path:
    lines = [FIRST.model_dump_json(), "{", '{"phase": "other"}', "", SECOND.model_dump_json()]
    path.write_text("\n".join(lines) + '\n{"phase": "meas')
    return path


def test_lines_that_are_damaged_are_left_out(tmp_path: Path) -> None:
    """As of a rank that was killed while it wrote."""
    path = written(tmp_path / "lines.jsonl")
    assert read_lines(tmp_path, path, Progress) == (FIRST, SECOND)
    assert read_lines(tmp_path, tmp_path / "nowhere", Progress) == ()


def test_lines_of_another_folder_are_not_read(tmp_path: Path) -> None:
    """A results folder from somebody else must not show what its reader may read."""
    root = tmp_path / "run"
    root.mkdir()
    (root / "lines.jsonl").symlink_to(written(tmp_path / "outside.jsonl"))
    assert read_lines(root, root / "lines.jsonl", Progress) == ()


def test_too_large_a_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "lines.jsonl")
    monkeypatch.setattr(json_files, "_MAX_LINES_BYTES", 20)
    assert read_lines(tmp_path, path, Progress) == ()
