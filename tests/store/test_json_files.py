"""Files of one JSON object, and files of one per line."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator

from tests.factories import cells, launch_record
from torchscale.errors import FileSystemError, StoreError
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.record import LaunchRecord
from torchscale.store import json_files
from torchscale.store.json_files import (
    DamagedFileError,
    OtherVersionError,
    UnreadableFileError,
    first_mistake,
    read_lines,
    read_model,
)

FIRST, SECOND = (Progress(phase="measuring", steps=steps) for steps in (1, 2))


def written(path: Path) -> Path:
    lines = [FIRST.model_dump_json(), "{", '{"phase": "other"}', "", SECOND.model_dump_json()]
    path.write_text("\n".join(lines) + '\n{"phase": "meas')
    return path


def test_lines_that_are_damaged_are_left_out(tmp_path: Path) -> None:
    """As of a rank that was killed while it wrote."""
    path = written(tmp_path / "use.jsonl")
    assert read_lines(tmp_path, path, Progress) == (FIRST, SECOND)
    assert read_lines(tmp_path, tmp_path / "nowhere", Progress) == ()


def test_lines_of_another_folder_are_not_read(tmp_path: Path) -> None:
    """A results folder from somebody else must not show what its reader may read."""
    root = tmp_path / "run"
    root.mkdir()
    (root / "use.jsonl").symlink_to(written(tmp_path / "outside.jsonl"))
    assert read_lines(root, root / "use.jsonl", Progress) == ()


def test_too_large_a_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "use.jsonl")
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
    [
        (0, r"written by an older torchscale \(format 0\); this version reads format 2"),
        (1, r"written by torchscale 0\.1\.0 \(format 1\); this version reads format 2"),
        (3, "schema version 3; this torchscale reads up to 2"),
    ],
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


class Form(BaseModel):
    """Values of which any may be wrong."""

    count: int = Field(default=0, lt=3)
    share: float = Field(default=0.0, le=1e30)
    name: str = ""

    @field_validator("name")
    @classmethod
    def _check(cls, name: str) -> str:
        if name.startswith("bad"):
            raise ValueError(name)
        return name


LONGEST = f"bad{'x' * (300 - len('name: Value error, bad'))}"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"count": 7}, "count: Input should be less than 3, not 7"),
        ({"count": 2**128 - 1}, f"count: Input should be less than 3, not {2**128 - 1}"),
        ({"count": 2**128}, "count: Input should be less than 3"),
        ({"share": 2e30}, "share: Input should be less than or equal to 1e+30, not 2e+30"),
        ({"name": True}, "name: Input should be a valid string, not true"),
        ({"count": 5, "name": 5}, "count: Input should be less than 3, not 5"),
        ({"count": "secret"}, "count: Input should be a valid integer, unable to parse string as an"
         " integer"),
        ([], "Input should be an object"),
        ({"name": LONGEST}, f"name: Value error, {LONGEST}"),
        ({"name": f"{LONGEST}x"}, f"name: Value error, {LONGEST[:-1]}…"),
    ],
)  # fmt: skip
def test_the_first_mistake_is_told_in_a_line_that_quotes_numbers_alone(
    content: object, said: str
) -> None:
    with pytest.raises(ValidationError) as raised:
        Form.model_validate_json(json.dumps(content))
    assert first_mistake(raised.value) == said


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ('{"count": 1, "count": 2}', "count"),
        ('{"name": "a", "count": 1, "name": "b", "count": 2}', "name"),
        (f'{{"{"k" * 101}": 1, "{"k" * 101}": 2}}', "k" * 100),
        ('{"name": "a", "count": 1}', None),
    ],
)
def test_a_key_that_is_there_twice_is_refused_where_people_write(
    tmp_path: Path, text: str, key: str | None
) -> None:
    """JSON readers take the last of them, which nobody sees."""
    path = tmp_path / "form.json"
    path.write_text(text)
    assert read_model(tmp_path, path, Form)
    if key is None:
        assert read_model(tmp_path, path, Form, keys_once=True) == Form(name="a", count=1)
        return
    with pytest.raises(DamagedFileError) as raised:
        read_model(tmp_path, path, Form, keys_once=True)
    assert str(raised.value) == (
        f"{tmp_path.name}/form.json: the key {key!r} is there twice in one object; expected it once"
    )


@pytest.mark.parametrize(
    ("error", "reason", "refusal"),
    [
        (OSError(errno.EIO, "Input/output error"), "Input/output error", FileSystemError),
        (OSError("the server is gone"), "the server is gone", FileSystemError),
        (OSError(errno.ENOENT, "No such file or directory"), "No such file", StoreError),
    ],
)
def test_a_file_that_may_be_whole_is_told_from_a_damaged_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: OSError,
    reason: str,
    refusal: type[StoreError],
) -> None:
    """Only the damaged one is measured again."""

    def failing(*_: object, **__: object) -> bytes:
        raise error

    monkeypatch.setattr(json_files, "read_bounded", failing)
    with pytest.raises(DamagedFileError, match=reason) as raised:
        read_model(tmp_path, tmp_path / "form.json", Form)
    assert isinstance(raised.value, UnreadableFileError) is (refusal is FileSystemError)
    assert type(raised.value.refused()) is refusal
