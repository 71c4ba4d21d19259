"""A corpus of recordings and dumps, one row each: what is found, and that no file ends the run."""

from __future__ import annotations

import csv
import gzip
import importlib
import json
import pickle
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.features.trace.readers.builders import host, kernel, kineto, step

script: Any = importlib.import_module("corpus")
DUMP = pickle.dumps({"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": []})
WATCHDOG = "[rank1]: [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=5)\n"


def recording(rank: int | None = 0, world_size: int = 1, **changes: Any) -> str:
    events = [
        event
        for number in range(3)
        for event in (
            step(number, 1000 * number, 1000),
            host("cpu_op", "aten::mm", 1000 * number, 900),
            kernel("gemm", 1000 * number + 100, 600),
        )
    ]
    events[1] |= changes
    return kineto(events, rank=rank, world_size=world_size, backend="gloo")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A directory of each kind, and what is none."""
    top = tmp_path / "corpus"
    for name, content in {
        "set/rank0.json": recording(0, 2),
        "set/rank1.json": recording(1, 2),
        "twice/run1.json": recording(0),
        "twice/run2.json": recording(0),
        "other/control.json": recording(),
        "other/rank0.json": recording(),
        "broken/cut.json": recording()[:300],
        "broken/config.json": '{"models": ["resnet50"]}',
        "logs/attempt_0/0/stderr.log": WATCHDOG,
        "logs/attempt_0/1/stderr.log": WATCHDOG,
        "logs/attempt_0/1/stdout.log": "step 3\n",
        "logs/README.txt": "of a job that hung\n",
        "run/analysis.json": '{"traceEvents": []}',
    }.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (top / "dumps").mkdir()
    for rank in range(2):
        (top / f"dumps/nccl_trace_rank_{rank}").write_bytes(DUMP)
    (top / "packed.json.gz").write_bytes(gzip.compress(recording().encode()))
    with tarfile.open(top / "both.tar.gz", "w:gz") as archive:
        archive.add(top / "set")
    (top / "link.json").symlink_to(top / "set/rank0.json")
    return top


def rows(printed: str) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in map(json.loads, printed.splitlines())}


def test_files_are_found_by_what_they_hold(corpus: Path) -> None:
    items, others = script.find_items([corpus])
    assert {(item.name, item.kind, item.files) for item in items} == {
        ("corpus/set/ (2 files)", script.PROFILER, 2),
        ("corpus/twice/ (2 files)", script.PROFILER, 2),
        ("corpus/other/control.json", script.PROFILER, 1),
        ("corpus/other/rank0.json", script.PROFILER, 1),
        ("corpus/broken/cut.json", script.PROFILER, 1),
        ("corpus/broken/config.json", script.UNKNOWN, 1),
        ("corpus/logs", script.LOGS, 2),
        ("corpus/dumps", script.DUMPS, 2),
        ("corpus/packed.json.gz", script.PROFILER, 1),
        ("corpus/both.tar.gz", script.ARCHIVE, 1),
    }
    assert others == 3


def test_hosts_of_one_job_are_one_row_and_other_names_are_not(tmp_path: Path) -> None:
    for name in ("nodea_1.7.pt.trace.json", "nodeb_2.8.pt.trace.json", "before.json", "after.json"):
        (tmp_path / name).write_text(recording())
    items, _ = script.find_items([tmp_path])
    assert sorted(item.files for item in items) == [1, 1, 2]


def test_names_of_other_bytes_and_a_directory_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a\udcff.json").write_text(recording())
    monkeypatch.chdir(tmp_path)
    ((item,), _) = script.find_items([Path()])
    assert item.name == f"{tmp_path.name}/a\\xff.json"


def test_what_cannot_be_started_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def popen(*_: object, **__: object) -> None:
        raise OSError(7, "Argument list too long")

    monkeypatch.setattr(script.subprocess, "Popen", popen)
    row = script.analyze(script.Item("a", script.PROFILER, (Path("a"),), 1), script.Limits())
    assert (row.state, row.reason) == (script.FAILED, "not started: Argument list too long")


def test_a_share_without_a_figure_of_each_rank_is_none() -> None:
    assert script.percent([1.0, 3.0], 8.0) == 50.0
    assert script.percent([1.0, None], 8.0) is None
    assert script.percent([1.0], 0.0) is None
    assert script.percent([1.0], float("nan")) is None


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ("error: a: no\n  recording\nhint: b\n", "a: no recording"),
        ("Exported\nerror: a\n", "a"),
        ("Traceback (most recent call last):\n", ""),
    ],
)
def test_a_refusal_is_the_message_of_the_error(printed: str, told: str) -> None:
    assert script.refusal_in(printed) == told


def test_a_text_breaks_no_table() -> None:
    assert script.cell("a|b\nc") == "a\\|b c"
    assert script.cell(None) == "–"
    assert script.cell(0.0) == "0.0"


@pytest.mark.slow
def test_a_row_for_each_and_no_file_ends_the_run(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--json", str(corpus)]) == 0
    output = capsys.readouterr()
    found = rows(output.out)
    together = found["corpus/set/ (2 files)"]
    assert (together["state"], together["ranks"], together["steps"]) == ("read", 2, 2)
    assert together["compute"] == pytest.approx(60)
    assert together["idle"] == pytest.approx(40)
    assert found["corpus/both.tar.gz"]["ranks"] == 2
    assert "rank 0 is there more than once" in found["corpus/twice/ (2 files)"]["reason"]
    assert found["corpus/twice/run1.json"]["state"] == "read"
    assert found["corpus/twice/run2.json"]["state"] == "read"
    assert found["corpus/broken/cut.json"]["state"] == "refused"
    assert "cut off" in found["corpus/broken/cut.json"]["reason"]
    assert "neither a trace" in found["corpus/broken/config.json"]["reason"]
    assert found["corpus/dumps"]["state"] == "read"
    assert "other files left out" in output.err


@pytest.mark.slow
def test_what_takes_too_long_fails_and_the_next_row_follows(
    corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--csv", "--seconds", "0.01", str(corpus / "other")]) == 1
    found = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["reason"] for row in found] == ["not done after 0.01 s"] * 2
    assert {row["state"] for row in found} == {"failed"}


@pytest.mark.slow
def test_what_takes_too_much_memory_fails(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--memory", "0.01", str(corpus / "packed.json.gz")]) == 1
    assert "| failed |" in capsys.readouterr().out


def test_nothing_to_analyze_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in (tmp_path, tmp_path / "gone"):
        with pytest.raises(SystemExit) as ended:
            script.main([str(path)])
        assert ended.value.code == 2
    assert "no recording and no dump in it" in capsys.readouterr().err
