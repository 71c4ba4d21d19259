from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchscale.schema.launch.progress import Progress
from torchscale.store.changes import (
    ended_launches,
    fingerprint,
    launch_ends,
    running_launch,
)

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


def written(path: Path, at: int) -> None:
    """A file of this time, in nanoseconds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    os.utime(path, ns=(at, at))


def test_a_page_is_made_anew_where_anything_ended_and_only_then(tmp_path: Path) -> None:
    """Also where a file is as old as one before: a clock may go back, and copies keep times."""
    seen = [fingerprint(tmp_path)]
    for name in (
        "experiment.json",
        "cells/a/launch-0/record.json",
        "cells/a/launch-1/record.json",
        "cells/a/profile-0/analysis.json",
    ):
        written(tmp_path / name, 5_000)
        seen.append(fingerprint(tmp_path))
    written(tmp_path / "cells/a/launch-0/record.json", 6_000)
    seen.append(fingerprint(tmp_path))
    assert len(set(seen)) == len(seen)
    written(tmp_path / "cells/a/launch-0/progress.jsonl", 9_000)
    assert fingerprint(tmp_path) == seen[-1]


def test_ended_launches_stand_in_the_order_of_time(tmp_path: Path) -> None:
    written(tmp_path / "cells/a/launch-0/record.json", 7_000)
    written(tmp_path / "cells/b/launch-0/record.json", 5_000)
    written(tmp_path / "cells/b/launch-1/progress.jsonl", 1_000)
    assert ended_launches(tmp_path) == [("b", 5_000), ("a", 7_000)]


def test_the_launch_that_runs_is_the_one_that_reported_last(tmp_path: Path) -> None:
    for number, at in ((0, 9_000), (1, 5_000), (2, 7_000)):
        written(tmp_path / f"cells/a/launch-{number}/progress.jsonl", at)
    written(tmp_path / "cells/a/launch-0/record.json", 9_000)
    running = running_launch(tmp_path)
    assert running is not None
    assert (running.cell_id, running.launch) == ("a", 2)
    assert running_launch(tmp_path / "nowhere") is None


def test_a_launch_whose_folder_somebody_renamed_is_shown_as_the_first(tmp_path: Path) -> None:
    """The page of a run that is watched is made all the same."""
    written(tmp_path / "cells/a/launch-copy/progress.jsonl", 5_000)
    running = running_launch(tmp_path)
    assert running is not None
    assert (running.cell_id, running.launch) == ("a", 0)
