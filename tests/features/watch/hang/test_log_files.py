"""Which files are logs of ranks, and how they are read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from torchscale.features.watch.hang import log_files
from torchscale.features.watch.hang.log_files import LogLines, find_logs, last_error


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
        (["rank_65535.log", "rank_65536.log"], {"rank_65535.log": 65535, "rank_65536.log": None}),
        (["run-0.log"], {"run-0.log": None}),
        (["a_0.log", "a_3.log"], {"a_0.log": 0, "a_3.log": 3}),
        (["a_0.log", "a_4.log"], {"a_0.log": None, "a_4.log": None}),
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
    assert [log.path.parent.name for log in run] == ["0", "00"]
    assert {log.path.parent.parent.name for log in run} == {"attempt_1"}
    assert find_logs(tmp_path / "run/attempt_1") == [run], "of its own folder it is the same run"


def test_the_run_that_wrote_last_comes_first(tmp_path: Path) -> None:
    for name, time in (("a", 5_000), ("b", 9_000), ("c", 7_000)):
        for rank, earlier in ((0, 0), (1, 4_500)):
            path = tmp_path / name / "attempt_0" / str(rank) / "stderr.log"
            path.parent.mkdir(parents=True)
            path.write_text("x")
            os.utime(path, (time - earlier, time - earlier))
    assert [run[0].path.parents[2].name for run in find_logs(tmp_path)] == ["b", "c", "a"]


def test_in_the_folder_of_a_rank_its_logs_alone_are_read(tmp_path: Path) -> None:
    for name in ("rank_65535/out.log", "rank_65536/out.log", "rank_65535/model.pt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "rank_65535/old.log").mkdir()
    assert ranks(tmp_path) == [{"out.log": 65535}]


def test_a_word_for_ranks_in_a_name_makes_its_number_sure(tmp_path: Path) -> None:
    for name in ("rank_1.log", "out_0.log", "out_1.log"):
        (tmp_path / name).write_text("x")
    (run,) = find_logs(tmp_path)
    assert {log.path.name for log in run if log.is_sure} == {"rank_1.log"}


def test_only_the_end_of_a_long_log_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_files, "_MAX_FILE_BYTES", 100)
    path = tmp_path / "rank_0.log"
    path.write_bytes(b"first\n" + b"x" * 200 + b"\nlast\n")
    lines = LogLines(1)
    assert [line for line in lines.of(path) if b"x" not in line] == [b"last\n"]
    assert lines.cut == ["rank_0.log"]
    path.write_bytes(b"x" * 99 + b"\n")
    whole = LogLines(1)
    assert [len(line) for line in whole.of(path)] == [100]
    assert whole.cut == []


def test_a_log_that_is_emptied_while_it_is_read_ends(tmp_path: Path) -> None:
    """As where a tool rotates logs."""
    path = tmp_path / "rank_0.log"
    path.write_bytes(b"first\n" * 1_000_000)
    lines = LogLines(1).of(path)
    assert next(lines) == b"first\n"
    path.write_bytes(b"")
    assert sum(1 for _ in lines) < 999_999


def test_a_log_that_is_written_on_is_read_up_to_where_it_ended(tmp_path: Path) -> None:
    path = tmp_path / "rank_0.log"
    path.write_bytes(b"line\n" * 100)
    lines = LogLines(1).of(path)
    next(lines)
    with path.open("ab") as file:
        file.write(b"line\n" * 100_000)
    assert sum(1 for _ in lines) == 99


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ValueError: x\n", "ValueError: x"),
        ("ValueError: x\na\n\nb\nc\n", "ValueError: x"),
        ("ValueError: x\na\nb\nc\nd\n", ""),
        ("KeyError: 1\nValueError: x\nd\n", "ValueError: x"),
        (f"ValueError: {'x' * 200}\n", f"ValueError: {'x' * 148}"),
        ("step 3\n", ""),
        ("", ""),
    ],
)
def test_the_exception_that_a_log_ends_with(tmp_path: Path, text: str, error: str) -> None:
    """Up to three lines may follow it, as warnings of a process that ends."""
    (tmp_path / "a.log").write_text("step 2\n")
    (tmp_path / "b.log").write_text(text)
    assert last_error([tmp_path / "a.log", tmp_path / "b.log"]) == error


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
