"""Files of a rank, while they are written."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tests.features.watch.analysis.jobs import START_NS, job
from tests.features.watch.job.folders import append, until, write_job
from torchscale.errors import StoreError
from torchscale.features.watch.job.rank_folders import rank_folders, remove_moments
from torchscale.features.watch.job.stream import Names, RankStream


def test_what_is_written_later_is_read_later(tmp_path: Path) -> None:
    (whole, _) = job(2, 20)
    first, rest = until(whole, START_NS + 100_000_000)
    write_job(tmp_path, [first])
    folder = tmp_path / "ranks" / "0.0"
    stream = RankStream(folder, Names())

    assert len(stream.read().moments.time) == len(first.moments.time)
    assert not len(stream.read().moments.time)
    append(folder, rest)
    read = stream.read()
    assert len(read.moments.time) == len(rest.moments.time)
    assert read.calls.sequence.tolist() == rest.calls.sequence.tolist()


def test_a_number_that_is_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 5))
    path = tmp_path / "ranks" / "0.0" / "marks-000001.bin"
    content = path.read_bytes()
    path.write_bytes(content[:-3])
    stream = RankStream(path.parent, Names())

    count = len(stream.read().moments.time)
    path.write_bytes(content)
    assert len(stream.read().moments.time) == 1
    assert count == len(content) // 8 - 1


def test_segments_are_one_stream_and_a_removed_one_is_a_gap(tmp_path: Path) -> None:
    (whole, _) = job(2, 20)
    first, rest = until(whole, START_NS + 100_000_000)
    write_job(tmp_path, [first])
    folder = tmp_path / "ranks" / "0.0"
    stream = RankStream(folder, Names())
    stream.read()
    append(folder, rest, segment=2)

    assert len(stream.read().moments.time) == len(rest.moments.time)
    assert not stream.has_gap
    append(folder, rest, segment=4)
    stream.read()
    assert stream.has_gap


def test_names_are_shared_by_ranks(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 5))
    names = Names()
    streams = [RankStream(folder, names) for folder in rank_folders(tmp_path).values()]
    groups = {int(group) for stream in streams for group in stream.read().calls.group}

    assert groups == {0}
    assert names.members == {0: (0, 1)}
    assert names.calls == {("all_reduce", 1 << 20): 0}


def test_the_backends_of_a_group_and_its_sends_are_groups_of_their_own() -> None:
    names = Names(ranks={"0": (0, 1)})
    numbers = [
        names.group("0", "gloo"),
        names.group("0", "nccl"),
        names.group("0", "nccl", is_p2p=True),
    ]

    assert len(set(numbers)) == 3
    assert names.members == {numbers[0]: (0, 1), numbers[1]: (0, 1)}


def test_lengths_are_read_until_when_all_are_known(tmp_path: Path) -> None:
    write_job(tmp_path, job(2, 5))
    folder = tmp_path / "ranks" / "0.0"
    unknown, key, until_ns = 7, 0, START_NS + 30
    rows = [
        (1, key, 250),
        (2, unknown, 99),
        (3, key, -1),
        (until_ns, -1, 0),
    ]
    (folder / "lengths-000001.bin").write_bytes(np.array(rows, np.int64).tobytes())
    stream = RankStream(folder, Names())
    lengths = stream.read().lengths

    assert lengths.sequence.tolist() == [1]
    assert lengths.duration.tolist() == [250]
    assert stream.settled_ns == until_ns


def test_a_call_of_an_unknown_key_is_left_out(tmp_path: Path) -> None:
    write_job(tmp_path, job(1, 5))
    folder = tmp_path / "ranks" / "0.0"
    with (folder / "calls-000001.bin").open("ab") as file:
        file.write(np.array([1, 1, 99], np.int64).tobytes())

    assert len(RankStream(folder, Names()).read().calls) == 5


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rank.json", "{"),
        ("rank.json", json.dumps({"format": 2})),
        ("names.jsonl", "nothing\n"),
        ("names.jsonl", '{"key": 0}\n'),
        ("compiles.jsonl", '{"id": 0}\n'),
    ],
)
def test_a_damaged_file_is_one_error(tmp_path: Path, name: str, content: str) -> None:
    write_job(tmp_path, job(1, 5))
    path = tmp_path / "ranks" / "0.0" / name
    stream = RankStream(path.parent, Names())
    path.write_text(content)

    with pytest.raises(StoreError, match=name):
        stream.read()


def test_partners_of_messages_are_read(tmp_path: Path) -> None:
    write_job(tmp_path, job(1, 5))
    folder = tmp_path / "ranks" / "0.0"
    with (folder / "names.jsonl").open("a") as file:
        file.write('{"sends": [1], "receives": [1, 2]}\n')
    stream = RankStream(folder, Names())
    stream.read()

    assert stream.peers == frozenset({1, 2})


def _damage(path: Path, kind: str) -> None:
    """Put something else in its place."""
    if path.exists():
        path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "elsewhere":
        path.symlink_to("/etc/hostname")
    else:
        path.write_bytes(b'{"rank": ' * 100_000)


@pytest.mark.parametrize("kind", ["pipe", "folder", "endless", "loop", "elsewhere"])
@pytest.mark.parametrize(
    "name",
    [
        "rank.json",
        "use.json",
        "checkpoints.json",
        "names.jsonl",
        "marks-000001.bin",
        "calls-000001.bin",
        "lengths-000001.bin",
        "shares-000001.bin",
        "samples-000001.bin",
        "memory-000001.bin",
        "compiles.jsonl",
    ],
)
def test_what_is_no_file_of_a_collector_is_one_error_at_once(
    tmp_path: Path, name: str, kind: str
) -> None:
    write_job(tmp_path, job(1, 5))
    folder = tmp_path / "ranks" / "0.0"
    stream = RankStream(folder, Names())
    _damage(folder / name, kind)

    with pytest.raises(StoreError, match=name):
        stream.read()
        stream.read_use()
        stream.read_checkpoints()


@pytest.mark.parametrize(
    "name", ["rank.json", "use.json", "checkpoints.json", "names.jsonl", "compiles.jsonl"]
)
def test_what_is_nested_without_end_is_one_error(tmp_path: Path, name: str) -> None:
    write_job(tmp_path, job(1, 5))
    folder = tmp_path / "ranks" / "0.0"
    stream = RankStream(folder, Names())
    (folder / name).write_bytes(b"[" * 100_000 + b"\n")

    with pytest.raises(StoreError, match=name):
        stream.read()
        stream.read_use()
        stream.read_checkpoints()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("world_size", 10**9),
        ("world_size", 0),
        ("rank", -1),
        ("rank", 1e308),
        ("start_ns", 2**63 - 1),
        ("began", 1e300),
        ("began", "soon"),
        ("process_began", -1.0),
        ("host", "h" * 30_000_000),
        ("cpus", [2**70]),
    ],
)
def test_a_number_or_text_beyond_its_bounds_is_one_error(
    tmp_path: Path, field: str, value: object
) -> None:
    write_job(tmp_path, job(1, 5))
    path = tmp_path / "ranks" / "0.0" / "rank.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), field: value}))

    with pytest.raises(StoreError, match=r"rank\.json"):
        RankStream(path.parent, Names())


@pytest.mark.parametrize("key", [2**28, 2**62, -5, -(2**63)])
def test_a_key_of_no_collective_takes_no_memory(tmp_path: Path, key: int) -> None:
    import numpy as np

    write_job(tmp_path, job(1, 5))
    folder = tmp_path / "ranks" / "0.0"
    rows = np.array([[1, 1, key], [2, 2, 0]], np.int64)
    (folder / "calls-000001.bin").write_bytes(rows.tobytes())
    (folder / "lengths-000001.bin").write_bytes(rows[:, [0, 2, 1]].tobytes())

    events = RankStream(folder, Names()).read()
    assert len(events.calls) == 1


def test_moments_are_removed_from_folders_of_the_job_alone(tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    (others / "marks-000001.bin").write_bytes(b"mine")
    (others / "pytorch_model.bin").write_bytes(b"mine")
    folder = tmp_path / "job"
    write_job(folder, job(2, 5))
    mine = folder / "ranks" / "0.0" / "pytorch_model.bin"
    mine.write_bytes(b"mine")
    (folder / "ranks" / "7.0").symlink_to(others)
    (folder / "ranks" / "0.0" / "marks-000002.bin").symlink_to(others / "pytorch_model.bin")

    remove_moments(folder)
    assert {path.name for path in others.iterdir()} == {"marks-000001.bin", "pytorch_model.bin"}
    left = {path.name for path in (folder / "ranks").rglob("*.bin")}
    assert left == {"pytorch_model.bin"}


@pytest.mark.parametrize("name", ["ranks", "ranks/0.0"])
def test_a_folder_that_is_a_link_out_is_no_rank(tmp_path: Path, name: str) -> None:
    write_job(tmp_path / "elsewhere", job(1, 5))
    folder = tmp_path / "job"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).symlink_to(tmp_path / "elsewhere" / name)

    assert rank_folders(folder) == {}
    remove_moments(folder)
    assert (tmp_path / "elsewhere" / "ranks" / "0.0" / "marks-000001.bin").is_file()
