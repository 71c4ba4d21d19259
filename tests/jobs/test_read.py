"""The report of a job, from its folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from torchscale.errors import StoreError
from torchscale.jobs.read import read_watch
from torchscale.jobs.run import REPORT
from torchscale.schema.watch.report import WatchReport


def test_a_report_is_read_as_it_was_written(tmp_path: Path) -> None:
    report = WatchReport(
        tool_version="1", command=("python", "train.py"), started_at="2026-01-01", seconds=3
    )
    (tmp_path / REPORT).write_text(report.model_dump_json())

    assert read_watch(tmp_path) == report


def test_a_folder_without_a_job_says_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no watched job") as caught:
        read_watch(tmp_path)
    assert caught.value.hint is not None
    assert "torchscale watch --" in caught.value.hint


@pytest.mark.parametrize("content", ["", "{", "[]", '{"kind": "other"}'])
def test_a_damaged_report_is_one_error(tmp_path: Path, content: str) -> None:
    (tmp_path / REPORT).write_text(content)

    with pytest.raises(StoreError, match=REPORT):
        read_watch(tmp_path)
