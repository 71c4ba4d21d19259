"""Dumps of other jobs, and launch directories of torchscale."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from tests.features.watch.hang.test_flight_recorder import dump, entry
from torchscale.errors import UsageError
from torchscale.features.watch.hang.dumps import read_directory
from torchscale.features.watch.hang.explain import explain_hang
from torchscale.schema.launch.hang import (
    FACTS_FILE,
    Autopsy,
    HangCause,
    HangFacts,
    RankCondition,
    RankDump,
    RankProcess,
    StackFrame,
    ThreadStack,
    dump_file,
)

WAITING, DONE = entry(4, retired=False), entry(3)


def verdict(directory: Path) -> Autopsy:
    evidence, facts = read_directory(directory)
    return explain_hang(evidence, facts.notes)


@pytest.mark.parametrize("suffix", ["", ".json", ".pickle"])
def test_files_of_torch_are_read_by_the_rank_in_their_names(tmp_path: Path, suffix: str) -> None:
    for rank, entries in ((0, [DONE, WAITING]), (1, [DONE])):
        content = dump(*entries)
        data = pickle.dumps(content) if suffix != ".json" else json.dumps(content).encode()
        (tmp_path / f"nccl_trace_rank_{rank}{suffix}").write_bytes(data)
    (tmp_path / "README.md").write_text("not a dump")
    (tmp_path / "rank-0.stderr.log").write_text(
        'Thread 0x1 (most recent call first):\n  File "/a.py", line 3 in f\n'
    )
    found = verdict(tmp_path)
    assert (found.cause, found.ranks) == (HangCause.RANK_MISSING, (1,))
    assert found.summary == "all_reduce #4 (25.0 MiB): rank 1 never called it"
    assert found.positions[0].place == "a.py:3 `f`"


def test_a_rank_without_a_file_is_the_suspect(tmp_path: Path) -> None:
    (tmp_path / "trace_0").write_text(json.dumps(dump(DONE, WAITING)))
    found = verdict(tmp_path)
    assert (found.ranks, found.confidence.value) == ((1,), "low")
    assert any("rank 1: no stack (no dump)" in line for line in found.evidence)


@pytest.mark.parametrize(
    "name", ["rank-1.json", "error-rank-1.json", "steps-rank-1.jsonl", "out_1.log"]
)
def test_what_else_a_launch_leaves_is_no_dump_that_cannot_be_read(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "trace_0").write_text(json.dumps(dump(DONE, WAITING)))
    (tmp_path / name).write_text("{}")
    found = verdict(tmp_path)
    assert found.summary.endswith("rank 1 left no dump")
    assert any("rank 1: no stack (no dump)" in line for line in found.evidence)


def test_a_dump_that_cannot_be_read_is_not_taken_for_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "trace_0").write_text(json.dumps(dump(DONE, WAITING)))
    (tmp_path / "trace_1").write_bytes(pickle.dumps(print))
    found = verdict(tmp_path)
    assert found.summary.endswith("rank 1 left no dump that can be read")
    (line,) = (line for line in found.evidence if line.startswith("rank 1"))
    assert "trace_1: a pickle that holds more than plain values" in line
    (tmp_path / "older_1").write_text(json.dumps(dump(DONE)))
    os.utime(tmp_path / "older_1", (1_700_000_000,) * 2)
    assert verdict(tmp_path).summary.endswith("rank 1 never called it")


def test_a_link_that_leads_nowhere_hides_no_dump(tmp_path: Path) -> None:
    for rank, entries in ((0, [DONE, WAITING]), (1, [DONE])):
        (tmp_path / f"trace_{rank}").write_text(json.dumps(dump(*entries)))
    (tmp_path / "gone_1").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop_1").symlink_to(tmp_path / "loop_1")
    assert verdict(tmp_path).ranks == (1,)


def test_the_newest_file_of_a_rank_counts(tmp_path: Path) -> None:
    for name, age, entries in (
        ("old_1", 100, [DONE, WAITING]),
        ("new_1", 0, [DONE]),
        ("new_0", 0, [DONE, WAITING]),
    ):
        path = tmp_path / name
        path.write_text(json.dumps(dump(*entries)))
        os.utime(path, (1_700_000_000 - age,) * 2)
    assert verdict(tmp_path).ranks == (1,)


def test_a_launch_directory_has_stacks_and_states_as_well(tmp_path: Path) -> None:
    frames = (StackFrame(file="/home/me/dataset.py", line=88, function="read"),)
    dumps = [
        RankDump(
            rank=0,
            pid=1,
            time=1.0,
            since=0.0,
            flight_recorders={"gloo": dump(DONE, WAITING)},
            groups={"0": (0, 1, 2)},
        ),
        RankDump(
            rank=1,
            pid=2,
            time=1.0,
            since=0.0,
            flight_recorders={"gloo": dump(DONE)},
            groups={"0": (0, 1, 2)},
            threads=(ThreadStack(name="MainThread", is_main=True, frames=frames),),
        ),
    ]
    for item in dumps:
        (tmp_path / dump_file(item.rank)).write_text(item.model_dump_json())
    states = [RankProcess(rank=0, pid=1), RankProcess(rank=1, pid=2), RankProcess(rank=2, pid=3)]
    (tmp_path / FACTS_FILE).write_text(
        HangFacts(processes=tuple(states), notes=("a note",)).model_dump_json()
    )
    found = verdict(tmp_path)
    assert (
        found.summary
        == "all_reduce #4 (25.0 MiB): rank 1 never called it; it is in dataset.py:88 `read`"
    )
    assert found.evidence[-2] == "a note"
    assert "gloo (1 to 2)" in found.evidence[-1]
    stopped = [*states[:2], RankProcess(rank=2, pid=3, condition=RankCondition.STOPPED)]
    (tmp_path / FACTS_FILE).write_text(HangFacts(processes=tuple(stopped)).model_dump_json())
    assert verdict(tmp_path).cause is HangCause.RANK_STOPPED


def test_a_directory_without_dumps_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no dump") as caught:
        read_directory(tmp_path)
    assert "TORCH_FR_DUMP_TEMP_FILE" in str(caught.value.hint)
    (tmp_path / "trace_0").write_text("{}")
    with pytest.raises(
        UsageError, match=r"trace_0: no dump of torch's flight recorder: it has no 'version'"
    ):
        read_directory(tmp_path)
    with pytest.raises(UsageError, match="cannot read"):
        read_directory(tmp_path / "nowhere")


@pytest.mark.parametrize("ranks", ["[0, 999999999]", [0, 10**15]])
def test_a_dump_that_claims_a_billion_ranks_takes_no_memory(tmp_path: Path, ranks: object) -> None:
    content = dump(WAITING, pg_config={"0": {"name": "0", "desc": "default_pg", "ranks": ranks}})
    (tmp_path / "trace_0").write_text(json.dumps(content))
    with pytest.raises(UsageError, match="at most 65,536 are read"):
        read_directory(tmp_path)


def test_pipes_are_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace_0")
    with pytest.raises(UsageError, match="trace_0: not a regular file"):
        read_directory(tmp_path)


def test_the_stack_of_a_rank_is_where_it_waits_and_else_what_was_seen_from_outside(
    tmp_path: Path,
) -> None:
    """Torch records where each collective was called: that of the one that does not complete
    counts. Of a rank without it, py-spy's stack goes before an older one in its log."""
    here, there = ([{"filename": name, "line": 7, "name": "step"}] for name in ("a.py", "b.py"))
    content = dump(entry(4, retired=False, frames=there), entry(5, frames=here))
    (tmp_path / "trace_0").write_text(json.dumps(content))
    (tmp_path / "rank-1.stderr.log").write_text(
        'Thread 0x1 (most recent call first):\n  File "/old.py", line 3 in f\n'
    )
    seen = (StackFrame(file="/seen.py", line=5, function="read"),)
    (tmp_path / FACTS_FILE).write_text(HangFacts(stacks={1: seen}).model_dump_json())
    evidence, _ = read_directory(tmp_path)
    assert [frame.file for frame in evidence[0].frames] == ["b.py"]
    assert evidence[1].frames == seen


def test_what_the_launcher_saw_is_read_without_a_dump_and_beside_one_without_a_recorder(
    tmp_path: Path,
) -> None:
    """All ranks may be stopped, or torch may be too old: their states are still known."""
    states = (RankProcess(rank=0), RankProcess(rank=1, condition=RankCondition.STOPPED))
    (tmp_path / FACTS_FILE).write_text(HangFacts(processes=states).model_dump_json())
    assert (verdict(tmp_path).cause, verdict(tmp_path).ranks) == (HangCause.RANK_STOPPED, (1,))
    silent = RankDump(rank=0, pid=1, time=1.0, since=0.0, problem="torch is too old")
    (tmp_path / dump_file(0)).write_text(silent.model_dump_json())
    assert verdict(tmp_path).ranks == (1,)
