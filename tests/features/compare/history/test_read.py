"""Run folders into a history: each once, changed ones again, what cannot be read named."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.histories import nightly, write_night
from torchscale.errors import UsageError
from torchscale.features.compare.history.entry import history_entry
from torchscale.features.compare.history.file import HistoryFile, open_history
from torchscale.features.compare.history.read import add_folders, history_trends, run_folders


@pytest.fixture
def history() -> Iterator[HistoryFile]:
    """One in memory."""
    with open_history(None) as opened:
        yield opened


def test_run_folders_at_any_depth(tmp_path: Path) -> None:
    deep = [write_night(tmp_path / "node-1" / "2026", 1), write_night(tmp_path, 2)]
    (deep[1] / "cells" / "inner").mkdir(parents=True)
    (
        deep[1] / "cells" / "inner" / "experiment.json"
    ).touch()  # what is inside a run is none of its own
    (tmp_path / "loop").symlink_to(tmp_path)
    assert run_folders(tmp_path) == sorted(deep)
    assert run_folders(deep[0]) == [deep[0]]
    with pytest.raises(UsageError, match="is not a directory"):
        run_folders(tmp_path / "absent")


def test_every_folder_is_added_once_and_read_once(tmp_path: Path, history: HistoryFile) -> None:
    folders = [write_night(tmp_path, number) for number in range(3)]
    read: list[Path] = []
    first = add_folders(history, folders, lambda number, folder: read.append(folder))
    assert (first.new, first.known, first.left_out) == (3, 0, ())
    assert read == folders
    again = add_folders(history, folders, lambda number, folder: read.append(folder))
    assert (again.new, again.known) == (0, 3)
    assert read == folders
    copied = Path(shutil.copytree(folders[0], tmp_path / "copy", copy_function=shutil.copyfile))
    os.utime(copied / "experiment.json", (0, 0))
    assert add_folders(history, [copied], lambda number, folder: read.append(folder)).known == 1
    assert read[-1] == copied
    assert len(history.content().runs) == 3


def test_what_cannot_be_read_is_named_and_the_rest_added(
    tmp_path: Path, history: HistoryFile
) -> None:
    broken, empty, good = (write_night(tmp_path, number) for number in range(3))
    (broken / "experiment.json").write_text("{")
    shutil.rmtree(empty / "cells")
    added = add_folders(history, [broken, empty, good], lambda number, folder: None)
    assert added.new == 1
    assert [
        str(folder) in text for folder, text in zip((broken, empty), added.left_out, strict=True)
    ] == [True, True]
    assert "no figures" in added.left_out[1]


def test_a_change_names_what_else_changed(history: HistoryFile) -> None:
    for number in range(24):
        slower = number >= 12
        level = (90.0 if slower else 100.0) * (1 + 0.004 * (number * 5 % 7 - 3))
        night = nightly(
            number,
            [[level]],
            driver="570.1" if slower else "550.54",
            git_commit="bbb" if slower else "aaa",
            hostname=f"node-{1 + number // 20}",  # changes later than the level does
        )
        assert history.add(history_entry(night))
    content, (trend,) = history_trends(history)
    assert len(content.runs) == 24
    (change,) = trend.changes
    assert (change.last.run.name, change.first.run.name) == ("night-11", "night-12")
    assert {difference.what: difference.values for difference in change.differences} == {
        "driver": ("550.54", "570.1"),
        "git commit": ("aaa", "bbb"),
    }
