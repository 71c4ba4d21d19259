from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchscale.schema.launch.progress import Progress
from torchscale.store.changes import launch_ends, running_launch

LINE = Progress(phase="measuring", steps=40, samples_per_second=1.0).model_dump_json() + "\n"


def launch(root: Path) -> Path:
    directory = root / "cells" / "a-b8-n1-fp32-ddp-00000000" / "launch-0"
    directory.mkdir(parents=True)
    return directory


def phase(root: Path) -> tuple[str, int]:
    running = running_launch(root)
    assert running is not None
    return running.phase, running.steps


def test_what_rank_0_reported_last(tmp_path: Path) -> None:
    path = launch(tmp_path) / "progress.jsonl"
    path.write_text(Progress(phase="building").model_dump_json() + "\n" + LINE + '{"phase": "fini')
    assert phase(tmp_path) == ("measuring", 40)


def test_of_a_large_file_the_end_is_read(tmp_path: Path) -> None:
    path = launch(tmp_path) / "progress.jsonl"
    with path.open("wb") as file:
        file.seek(3 << 30)  # sparse: reading all of it would take 3 GiB of memory
        file.write(b"\n" + LINE.encode())
    assert phase(tmp_path) == ("measuring", 40)


@pytest.mark.parametrize("kind", ["pipe", "link", "directory", "foreign JSON"])
def test_what_is_no_progress_file_is_not_read(tmp_path: Path, kind: str) -> None:
    root = tmp_path / "run"
    path = launch(root) / "progress.jsonl"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "link":
        (tmp_path / "outside").write_text(LINE)
        path.symlink_to(tmp_path / "outside")
    elif kind == "directory":
        path.mkdir()
    else:
        path.write_text('{"phase": "a secret of others", "steps": 3}\n')
    assert phase(root) == ("starting", 0)


def test_a_record_that_is_a_pipe_or_leads_out_is_left_out(tmp_path: Path) -> None:
    root = tmp_path / "run"
    directory = launch(root)
    os.mkfifo(directory / "record.json")
    other = directory.with_name("launch-1")
    other.mkdir()
    (tmp_path / "outside").write_text('{"state": "ok", "seconds": 1.0}')
    (other / "record.json").symlink_to(tmp_path / "outside")
    third = directory.with_name("launch-2")
    third.mkdir()
    (third / "record.json").write_text('{"state": "ok", "seconds": 1.0}')
    assert launch_ends(root, directory.parent.name) == {2: ("ok", 1.0)}
