"""Checkpoints of small models on one and two real gloo ranks."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.factories import cells, cpu_task
from tests.worker.forks import Forks
from torchscale.features.machine.checkpoint.launch import clean_up
from torchscale.schema.cells.checkpoint import CheckpointCell, CheckpointRank
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.checkpoint_place import checkpoint_place
from torchscale.worker.checkpoint.place import PlaceError, filesystem_type, made_place
from torchscale.worker.checkpoint.state import digest, spoil, state_bytes, tensors_of
from torchscale.worker.process_group import Ranks

ONE = Ranks(0, 0, 1, torch.device("cpu"), None)
EXPERTS = {"models": {"name": "tiny-moe", "seq_len": 16}}
_SCRIPT = """
import json, os, sys
from pathlib import Path
import torch
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.checkpoint.measure import measure_checkpoint
from torchscale.worker.checkpoint.place import PlaceError
from torchscale.worker.process_group import joined_ranks
from torchscale.worker.rank_files import RankFiles

torch.set_num_threads(1)
for number, content in enumerate(json.load(open(sys.argv[1]))):
    task = LaunchTask.model_validate(content)
    directory = Path(sys.argv[2]) / str(number)
    with joined_ranks(task, f"cell-{number}") as ranks:
        files = RankFiles(directory, ranks.rank)
        try:
            files.record(measure_checkpoint(task, task.cell, ranks, files))
        except PlaceError as error:
            (directory / f"refused-{ranks.rank}").write_text(str(error))
        ranks.barrier()
os._exit(0)
"""


def task_of(strategy: object, path: str | None, world_size: int, **content: Any) -> LaunchTask:
    settings = {"models": {"name": "tiny-decoder", "seq_len": 16}, "batch_sizes": 4, **content}
    training = {"optimizer": "adamw"}
    (cell,) = cells(
        gpu_counts=world_size, parallel={"strategy": strategy}, training=training, **settings
    )
    return cpu_task(CheckpointCell(training=cell, path=path, repeats=2, steps=2))


def run(forks: Forks, directory: Path, tasks: list[LaunchTask]) -> list[list[CheckpointRank]]:
    """The ranks' records of each task; none where it was refused."""
    (directory / "script.py").write_text(_SCRIPT)
    for number in range(len(tasks)):
        (directory / str(number)).mkdir()
    content = [task.model_dump(mode="json") for task in tasks]
    (directory / "tasks.json").write_text(json.dumps(content))
    (world_size,) = {task.cell.world_size for task in tasks}
    arguments = (str(directory / "tasks.json"), str(directory))
    forks.run(directory / "script.py", *arguments, ranks=world_size, tasks=tasks)
    return [
        [
            CheckpointRank.model_validate_json(path.read_bytes())
            for path in sorted((directory / str(number)).glob("rank-*.json"))
        ]
        for number in range(len(tasks))
    ]


@pytest.mark.slow
def test_what_is_saved_comes_back_on_two_ranks(forks: Forks, tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    tasks = [
        task_of("ddp", str(disk), 2),
        task_of("fsdp", None, 2),
        task_of("tensor", str(disk), 2),
        task_of("pipeline", str(disk), 2),
        task_of("ep", str(disk), 2, **EXPERTS),
        task_of("fsdp", str(tmp_path / "missing"), 2),
    ]
    *found, refused = run(forks, tmp_path, tasks)
    for ranks in found:
        assert [rank.rank for rank in ranks] == [0, 1]
        for rank in ranks:
            assert [load.restored for load in rank.loads] == [True, True]
            assert len(rank.saves) == len(rank.async_saves) == 2
            for save in rank.saves:
                assert save.write_seconds <= save.seconds <= save.stop_seconds
            for background in rank.async_saves:
                assert background.host_bytes > 0
                assert len(background.before) == len(background.after) == 2
                assert background.during == () or len(background.during) >= 1
        # All of the state is in the files, and little beside it.
        written = sum(rank.saves[0].payload_bytes for rank in ranks)
        assert ranks[0].state_bytes <= written < 1.5 * ranks[0].state_bytes
        in_background = sum(rank.async_saves[0].payload_bytes for rank in ranks)
        assert in_background == pytest.approx(written, rel=0.01)
    assert len({rank.state_bytes for ranks in found[:2] for rank in ranks}) == 1
    assert refused == []
    for number in range(2):
        said = (tmp_path / "5" / f"refused-{number}").read_text()
        assert said == f"{tmp_path / 'missing'}: cannot be written: No such file or directory"
    assert list(disk.iterdir()) == []
    assert not (tmp_path / "1" / "checkpoint").exists()


@pytest.mark.slow
def test_what_copies_of_split_matrices_save_comes_back(forks: Forks, tmp_path: Path) -> None:
    """DDP holds a rank's part of such a matrix as a plain tensor: saved like that, it would be the
    same entry as the other ranks' parts."""
    tasks = [
        task_of({"name": "tensor", "degree": 2}, None, 4),
        task_of({"name": "hybrid", "tensor": 2, "shard": 2}, None, 4),
        task_of({"name": "hybrid", "tensor": 2, "ep": 2}, None, 4, **EXPERTS),
    ]
    found = run(forks, tmp_path, tasks)
    for ranks in found:
        assert len(ranks) == 4
        for rank in ranks:
            assert [load.restored for load in rank.loads] == [True, True]
        written = sum(rank.saves[0].payload_bytes for rank in ranks)
        assert ranks[0].state_bytes <= written < 1.5 * ranks[0].state_bytes
    assert found[0][0].state_bytes == found[1][0].state_bytes


@pytest.mark.slow
def test_running_statistics_of_a_rank_are_its_own(forks: Forks, tmp_path: Path) -> None:
    """A checkpoint holds BatchNorm's of one rank, which is no damage."""
    (ranks,) = run(forks, tmp_path, [task_of("ddp", None, 2, models="tiny-resnet")])
    for rank in ranks:
        assert [load.restored for load in rank.loads] == [True, True]


@pytest.mark.slow
def test_one_rank_alone(forks: Forks, tmp_path: Path) -> None:
    ((rank,),) = run(forks, tmp_path, [task_of("none", None, 1)])
    assert [load.restored for load in rank.loads] == [True, True]
    assert rank.not_async == ""


def test_a_place_without_room_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    cell = task_of("none", str(tmp_path), 1).cell
    assert isinstance(cell, CheckpointCell)
    with (
        pytest.raises(PlaceError, match="free, and a checkpoint takes 4096 PiB"),
        made_place(cell, tmp_path / "launch", ONE, 1 << 62),
    ):
        raise AssertionError
    assert list(tmp_path.iterdir()) == []


def test_the_place_is_removed_after_a_failure_and_by_the_launcher(tmp_path: Path) -> None:
    cell = task_of("none", str(tmp_path), 1).cell
    assert isinstance(cell, CheckpointCell)
    launch = tmp_path / "results"
    with pytest.raises(ValueError, match="broken"), made_place(cell, launch, ONE, 1) as place:
        (place / "file").write_text("x")
        raise ValueError("broken")
    assert list(tmp_path.iterdir()) == []
    # A rank that is killed removes nothing; another launch's files are not touched.
    place, other = (checkpoint_place(str(tmp_path), launch / name) for name in ("a", "b"))
    place.mkdir()
    other.mkdir()
    (place / "file").write_text("x")
    clean_up(cell, launch / "a")
    assert list(tmp_path.iterdir()) == [other]


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    cell = task_of("none", str(blocked), 1).cell
    assert isinstance(cell, CheckpointCell)
    with (
        pytest.raises(PlaceError, match="cannot be written"),
        made_place(cell, tmp_path, ONE, 1),
    ):
        raise AssertionError


def test_the_type_of_a_file_system() -> None:
    if not os.path.ismount("/proc"):
        pytest.skip("no /proc")
    assert filesystem_type(Path("/proc/self")) == "proc"


def test_a_digest_tells_states_apart_by_a_bit() -> None:
    state = {"model": {"a": torch.ones(3), "b": torch.ones(2, dtype=torch.bfloat16)}, "lr": [0.1]}
    changed = torch.ones(3)
    same = {"lr": [0.1], "model": {"b": torch.ones(2, dtype=torch.bfloat16), "a": changed}}
    assert digest(state) == digest(same)
    changed[1] = 1.0000001
    assert digest(state) != digest(same)
    assert digest(state) != digest({**state, "lr": [0.2]})
    before = digest(state)
    assert state_bytes(state, ONE)[0] == 3 * 4 + 2 * 2
    spoil(state)
    assert digest(state) != before
    assert all(not tensor.any() for tensor in tensors_of(state))
