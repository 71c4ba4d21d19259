from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.factories import cells, rank_record
from tests.launch.test_collect import collect, failure, left_behind
from torchscale.launch.judge import EndingKind, LaunchEnding
from torchscale.launch.rank_records import (
    first_unusable_steps,
    missing_text,
    read_ranks,
    unusable_text,
)
from torchscale.schema.launch.failure import FailureKind
from torchscale.schema.launch.nodes import LaunchNode
from torchscale.schema.launch.rank import RankRecord
from torchscale.schema.launch.record import LaunchRecord
from torchscale.schema.state import State
from torchscale.store.json_files import MAX_FILE_BYTES

TWO = cells()[1]
NODES = tuple(
    LaunchNode(
        node_rank=place, hostname=f"n{place}", address=f"10.0.0.{place}", first_rank=place, ranks=1
    )
    for place in range(2)
)
ENDED = LaunchEnding(EndingKind.FINISHED, 0, "")


def of_two_nodes(directory: Path) -> LaunchRecord:
    return collect(directory, ENDED, nodes=NODES)


def with_number(path: Path, key: str, number: str) -> None:
    text = path.read_text()
    before, _, after = text.partition(f'"{key}":')
    path.write_text(f'{before}"{key}":{number}{after[after.index(",") :]}')


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def too_large(path: Path) -> None:
    os.truncate(path, MAX_FILE_BYTES + 1)


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def of_another_rank(path: Path) -> None:
    path.write_text(rank_record(TWO, 0).model_dump_json())


def of_another_launch(path: Path) -> None:
    path.write_text(rank_record(TWO, 1).model_copy(update={"world_size": 4}).model_dump_json())


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut off": (cut, "Invalid JSON: EOF while parsing"),
    "empty": (lambda path: path.write_bytes(b""), "Invalid JSON: EOF while parsing a value"),
    "zeros": (lambda path: path.write_bytes(bytes(400)), "Invalid JSON"),
    "no JSON": (lambda path: path.write_bytes(b"\xff\xfe\x00"), "Invalid JSON"),
    "nested": (
        lambda path: path.write_text("[" * 100_000),
        "Invalid JSON: recursion limit exceeded",
    ),
    "a list": (lambda path: path.write_text("[]"), "Input should be an object"),
    "another object": (lambda path: path.write_text("{}"), "rank: Field required"),
    "NaN": (
        lambda path: with_number(path, "samples_per_step", "NaN"),
        "samples_per_step: Input should be",
    ),
    "infinite": (
        lambda path: with_number(path, "measured_from", "Infinity"),
        "measured_from: Input should be a finite",
    ),
    "too large a number": (
        lambda path: with_number(path, "measured_from", "1e999"),
        "Input should be a finite number",
    ),
    "negative": (
        lambda path: with_number(path, "parameters", "-1"),
        "parameters: Input should be greater than",
    ),
    "of another rank": (of_another_rank, "it belongs to rank 0"),
    "of another launch": (of_another_launch, "it belongs to a launch of 4 ranks, this one has 2"),
    "too large": (too_large, "larger than 64 MiB"),
    "a pipe": (pipe, "not a regular file"),
    "a folder": (folder, "not a regular file"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_the_file_of_a_node_that_cannot_be_used_is_named_with_its_node(
    tmp_path: Path, case: str
) -> None:
    left_behind(tmp_path, seconds={0: [1.0], 1: [2.0]})
    damage, told = DAMAGE[case]
    damage(tmp_path / "rank-1.json")
    record = of_two_nodes(tmp_path)
    assert record.state is State.INCOMPLETE
    assert record.reason.startswith("rank-1.json of node 1 (n1) is unusable: ")
    assert told in record.reason
    assert "\n" not in record.reason


def test_a_record_that_is_not_there_is_named_with_its_node(tmp_path: Path) -> None:
    left_behind(tmp_path, seconds={0: [1.0]})
    record = of_two_nodes(tmp_path)
    assert record.reason == (
        "rank 1 exited before the measurement was complete, without an error; there is no "
        "rank-1.json of node 1 (n1)"
    )


def test_a_damaged_error_is_named_beside_the_exit_code(tmp_path: Path) -> None:
    left_behind(tmp_path, seconds={0: [1.0]}, failures=(failure(1, FailureKind.ERROR),))
    (tmp_path / "error-rank-1.json").write_text("{")
    text = "  rank      : 1 (local_rank: 0)\n  exitcode  : 3 (pid: 7)\n"
    (tmp_path / "node-1.torchrun.log").write_text(text)
    record = of_two_nodes(tmp_path)
    assert record.state is State.CRASHED
    assert record.reason.startswith(
        "rank 1 exited with 3 and wrote no error; error-rank-1.json of node 1 (n1) is"
    )


def test_on_one_machine_the_file_is_named_alone(tmp_path: Path) -> None:
    left_behind(tmp_path, seconds={0: [1.0], 1: [2.0]})
    cut(tmp_path / "rank-1.json")
    assert collect(tmp_path, ENDED).reason.startswith("rank-1.json is unusable: Invalid JSON")


STEPS: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (Path.unlink, "there is no steps-rank-1.jsonl of node 1 (n1)"),
    "empty": (
        lambda path: path.write_bytes(b""),
        "steps-rank-1.jsonl of node 1 (n1) is unusable: it is empty",
    ),
    "cut off": (cut, "line 1: Invalid JSON"),
    "NaN": (
        lambda path: with_number(path, "seconds", "NaN"),
        "line 1: seconds: Input should be a finite number",
    ),
    "negative": (
        lambda path: with_number(path, "seconds", "-1.0"),
        "line 1: seconds: Input should be greater",
    ),
    "a pipe": (pipe, "not a regular file"),
}


@pytest.mark.parametrize("case", STEPS)
def test_a_launch_without_the_steps_that_it_counts_is_invalid(tmp_path: Path, case: str) -> None:
    left_behind(tmp_path, seconds={0: [1.0], 1: [2.0]})
    damage, told = STEPS[case]
    damage(tmp_path / "steps-rank-1.jsonl")
    record = of_two_nodes(tmp_path)
    assert record.state is State.INVALID
    assert "steps-rank-1.jsonl of node 1 (n1)" in record.reason
    assert told in record.reason


def test_whole_files_have_nothing_to_name(tmp_path: Path) -> None:
    left_behind(tmp_path, seconds={0: [1.0], 1: [2.0]})
    contents = read_ranks(tmp_path, "rank-*.json", RankRecord.model_validate_json, 2)
    assert [record.rank for record in contents.found] == [0, 1]
    assert (contents.missing, contents.unusable) == ((), {})
    assert first_unusable_steps(tmp_path, range(2), NODES) == ""
    assert (missing_text("rank-*.json", (), NODES), unusable_text("rank-*.json", {}, NODES)) == (
        "",
        "",
    )


def test_of_many_files_three_are_named(tmp_path: Path) -> None:
    contents = read_ranks(tmp_path, "rank-*.json", RankRecord.model_validate_json, 1000)
    assert missing_text("rank-*.json", contents.missing, ()) == (
        "there is no rank-0.json; rank-1.json; rank-2.json; and 997 more files"
    )
