"""Which files are logs of ranks, and how they are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchscale.features.watch.hang import log_files
from torchscale.features.watch.hang.log_files import LogLines, find_logs


def ranks(directory: Path) -> list[dict[str, int | None]]:
    return [{log.path.name: log.rank for log in run} for run in find_logs(directory)]


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["rank_0.log", "rank_12.log"], {"rank_0.log": 0, "rank_12.log": 12}),
        (["worker-3.err"], {"worker-3.err": 3}),
        (["job_7_0.out", "job_7_1.out"], {"job_7_0.out": 0, "job_7_1.out": 1}),
        (["slurm-4711.out"], {"slurm-4711.out": None}),
        (["job-1.log", "job-2.log"], {"job-1.log": None, "job-2.log": None}),
        (["a_0.log", "a_900.log"], {"a_0.log": None, "a_900.log": None}),
        (["rank_99999.log"], {"rank_99999.log": None}),
        (["trace_0", "dump.json", "notes.md", "model.pt"], None),
    ],
)
def test_ranks_in_names(
    tmp_path: Path, names: list[str], found: dict[str, int | None] | None
) -> None:
    for name in names:
        (tmp_path / name).write_text("x")
    assert ranks(tmp_path) == ([found] if found else [])


def test_folders_of_torchrun(tmp_path: Path) -> None:
    for place in ("run/attempt_1/0", "run/attempt_0/0", "run/attempt_1/x", "run/attempt_1/00"):
        (tmp_path / place).mkdir(parents=True)
        (tmp_path / place / "stderr.log").write_text("x")
    (tmp_path / "run/attempt_x").mkdir()
    (tmp_path / "run/attempt_7").write_text("a file")
    (run,) = find_logs(tmp_path)
    assert {log.path.parent.parent.name for log in run} <= {"attempt_1"}


def test_only_the_end_of_a_long_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_MAX_FILE_BYTES", 100)
    path = tmp_path / "rank_0.log"
    path.write_bytes(b"first\n" + b"x" * 200 + b"\nlast\n")
    lines = LogLines(1)
    assert [line for line in lines.of(path) if b"x" not in line] == [b"last\n"]
    assert lines.cut == ["rank_0.log"]


def test_a_line_without_an_end_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "rank_0.log"
    path.write_bytes(b"y" * 1_000_000 + b"\nlast\n")
    found = list(LogLines(1).of(path))
    assert [len(line) for line in found] == [4096, 5]


def test_all_logs_together_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each log has its share, so that the last ones are read as well."""
    monkeypatch.setattr(log_files, "_MAX_TOTAL_BYTES", 8)
    lines = LogLines(2)
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(b"1\n2\n3\n4\n")
        assert list(lines.of(tmp_path / name)) == [b"3\n", b"4\n"]
    assert lines.cut == ["a.log", "b.log"]


def test_what_is_no_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rank_0.log")
    (tmp_path / "rank_1.log").symlink_to(tmp_path / "nowhere")
    (tmp_path / "rank_2.log").mkdir()
    assert find_logs(tmp_path) == []
    assert list(LogLines(1).of(tmp_path / "rank_0.log")) == []
    assert find_logs(tmp_path / "gone") == []


def test_folders_whose_names_are_other_numbers_are_none_of_ranks(tmp_path: Path) -> None:
    for name in ("2024", "2025", "rank_3"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.log").write_text("x")
    (run,) = find_logs(tmp_path)
    assert [log.rank for log in run] == [3]
