"""What the fuzzer runs, on inputs of each kind: accepted, refused, or a finding."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz import READERS, read

CORPUS = Path(__file__).parents[1] / "corpus"


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize(
    "data", [b"", b"{}", b"\x80", b"SQLite format 3\x00", b"\xff" * 64], ids=repr
)
def test_no_reader_takes_what_is_none_of_its_files(name: str, data: bytes, tmp_path: Path) -> None:
    assert not read(READERS[name], data, tmp_path)


def test_a_sound_config_is_accepted(tmp_path: Path) -> None:
    assert read(READERS["config"], b"models: tiny-resnet\nbatch_sizes: [8]\n", tmp_path)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*/*")), ids=lambda path: path.name)
def test_inputs_that_once_were_hostile(path: Path, tmp_path: Path) -> None:
    read(READERS[path.parent.name], path.read_bytes(), tmp_path)


def test_an_exception_that_is_no_refusal_is_a_finding(tmp_path: Path) -> None:
    def fails(data: bytes, directory: Path) -> None:
        raise RuntimeError(directory, data)

    with pytest.raises(RuntimeError):
        read(fails, b"", tmp_path)
