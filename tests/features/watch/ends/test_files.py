"""Files that processes leave as they end or wait."""

from __future__ import annotations

import json
from pathlib import Path

from tests.features.watch.ends.left import exited, raised
from torchscale.features.watch.ends.files import EndFiles, forget_earlier, read_waits, remove_files

STACKS = """Fatal Python error: Aborted

Thread 0x00007f8bf68116c0 (most recent call first):
  File "/x/threading.py", line 331 in wait

Thread 0x00007f8c17c5ab80 (most recent call first):
  File "/home/me/train.py", line 18 in report
  File "/home/me/train.py", line 21 in <module>

Extension modules: numpy (total: 1)
"""
HEADER = {"format": 1, "kind": "crash", "time": 1.0, "pid": 7, "host": "here", "rank": 3}


def _write(directory: Path, name: str, text: str, folder: str = "ends") -> Path:
    (directory / folder).mkdir(exist_ok=True)
    path = directory / folder / name
    path.write_text(text)
    return path


def test_ends_are_those_of_an_attempt_in_their_order(tmp_path: Path) -> None:
    for end in (exited(1, 2.0, 1), raised(0, 1.0, "A", "b"), raised(0, 1.0, "A", "b", attempt=3)):
        _write(tmp_path, f"{end.kind}-{end.time}-{end.attempt}.json", end.model_dump_json())
    files = EndFiles(tmp_path)

    assert [end.time for end in files.of_attempt(0)] == [1.0, 2.0]
    assert files.attempts() == {0, 3}


def test_what_a_rank_has_started_makes_no_attempt(tmp_path: Path) -> None:
    end = raised(0, 1.0, "A", "b", attempt=5, of_rank=7)
    _write(tmp_path, "raised-1.json", end.model_dump_json())
    assert EndFiles(tmp_path).attempts() == set()


def test_stacks_of_a_crash_are_read_once_they_are_there(tmp_path: Path) -> None:
    path = _write(tmp_path, "crash-7.txt", json.dumps(HEADER) + "\n")
    files = EndFiles(tmp_path)
    assert files.of_attempt(0) == []
    path.write_text(json.dumps(HEADER) + "\n" + STACKS)

    (end,) = files.of_attempt(0)
    assert [frame[1:] for frame in end.frames] == [(21, "<module>"), (18, "report")]
    assert end.time == path.stat().st_mtime


def test_damage_and_others_files_are_left_out(tmp_path: Path) -> None:
    _write(tmp_path, "raised-1.json", "{")
    _write(tmp_path, "raised-2.json.part", "")
    _write(tmp_path, "crash-1.txt", "nonsense\n" + STACKS)
    _write(tmp_path, "raised-3.json", "x" * (300 << 10))
    _write(tmp_path, "group-1.json", "[]", "waits")
    assert EndFiles(tmp_path).of_attempt(0) == []
    assert read_waits(tmp_path) == []


def test_a_link_that_leads_out_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    _write(tmp_path, "raised-1.json", raised(0, 1.0, "A", "b").model_dump_json(), "elsewhere")
    (tmp_path / "job" / "ends").symlink_to(tmp_path / "elsewhere")

    assert EndFiles(tmp_path / "job").of_attempt(0) == []
    remove_files(tmp_path / "job")
    assert (tmp_path / "elsewhere" / "raised-1.json").is_file()


def test_what_an_earlier_run_of_this_host_left_is_forgotten(tmp_path: Path) -> None:
    there = raised(1, 1.0, "A", "b", host="there")
    _write(tmp_path, "raised-0.json", raised(0, 1.0, "A", "b").model_dump_json())
    _write(tmp_path, "raised-1.json", there.model_dump_json())
    _write(tmp_path, "crash-7.txt", json.dumps(HEADER) + "\n")
    forget_earlier(tmp_path, "here")

    assert [path.name for path in (tmp_path / "ends").iterdir()] == ["raised-1.json"]


def test_all_is_removed_but_what_is_not_ours(tmp_path: Path) -> None:
    _write(tmp_path, "raised-1.json", "{}")
    _write(tmp_path, "group-1.json", "{}", "waits")
    mine = _write(tmp_path, "mine", "", "waits")
    remove_files(tmp_path)

    assert not (tmp_path / "ends").exists()
    assert list((tmp_path / "waits").iterdir()) == [mine]
