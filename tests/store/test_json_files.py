"""Files of one JSON object, and files of one per line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.factories import cells, launch_record
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.store import json_files
from torchscale.store.json_files import DamagedFileError, OtherVersionError, read_lines, read_model

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


def test_a_damaged_record_is_refused_by_its_key(tmp_path: Path) -> None:
    content = json.loads(launch_record(cells()[0]).model_dump_json())
    path = tmp_path / "record.json"
    path.write_text(json.dumps({**content, "seconds": "long"}))
    with pytest.raises(DamagedFileError, match="seconds"):
        read_model(tmp_path, path, LaunchRecord)


@pytest.mark.parametrize(
    ("version", "said"),
    [(1, "this version reads format 2"), (3, "schema version 3; this torchscale reads up to 2")],
)
def test_a_record_of_another_version_is_refused_although_its_form_fits(
    tmp_path: Path, version: int, said: str
) -> None:
    """A field may mean something else there: what is read would be compared as if it did not."""
    content = json.loads(launch_record(cells()[0]).model_dump_json())
    path = tmp_path / "record.json"
    path.write_text(json.dumps({**content, "schema_version": version}))
    with pytest.raises(OtherVersionError, match=said):
        read_model(tmp_path, path, LaunchRecord)


def test_why_a_file_cannot_be_read_is_said_without_its_path_again(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.mkdir()
    with pytest.raises(DamagedFileError) as raised:
        read_model(tmp_path, path, LaunchRecord)
    assert "Errno" not in str(raised.value)
    assert str(raised.value).count("record.json") == 1


def test_a_number_of_a_thousand_digits_is_an_error_without_it(tmp_path: Path) -> None:
    """A line of them would hide which key is wrong."""
    record = launch_record(cells()[0]).model_dump_json()
    path = tmp_path / "record.json"
    path.write_text(record.replace('"launch":0', f'"launch":{"9" * 1000}', 1))
    with pytest.raises(DamagedFileError, match="launch") as raised:
        read_model(tmp_path, path, LaunchRecord)
    assert "999" not in str(raised.value)
