"""What else ran while a size was measured is recorded with it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from torchscale.schema.cells.collectives import CollectivesCell, CollectivesRank
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.machine import collectives as module
from torchscale.worker.machine.collectives import measure_collectives
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles


@pytest.fixture
def alone() -> Iterator[Ranks]:
    """A process group of one rank."""
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield Ranks(0, 0, 1, torch.device("cpu"), "gloo")
    dist.destroy_process_group()


def measured(ranks: Ranks, directory: Path) -> CollectivesRank:
    cell = CollectivesCell(
        operations=("all_reduce", "barrier"),
        dtypes=("fp32",),
        min_bytes=1024,
        max_bytes=8192,
        iterations=5,
        warmup=1,
        world_size=1,
        device="cpu",
    )
    task = LaunchTask(
        cell=cell,
        launch=0,
        device="cpu",
        device_indices=(0,),
        threads_per_rank=1,
        started_at=0.0,
        collective_timeout_seconds=10,
    )
    return measure_collectives(task, cell, ranks, RankFiles(directory, 0))


def test_short_sizes_share_a_stretch_of_time(alone: Ranks, tmp_path: Path) -> None:
    found = measured(alone, tmp_path)
    assert [one.payload_bytes for one in found.samples] == [1024, 2048, 4096, 8192, 0]
    loads = [one.host_load for one in found.samples]
    assert loads[0] is not None
    assert loads == [loads[0]] * 5, "together they take less than a stretch"
    assert loads[0].wall_seconds >= sum(sum(one.call_seconds) for one in found.samples)


def test_long_sizes_have_a_stretch_each(
    alone: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_STRETCH_SECONDS", 0.0)
    found = measured(alone, tmp_path)
    walls = [one.host_load.wall_seconds for one in found.samples if one.host_load is not None]
    assert len(set(walls)) == 5
    assert all(
        wall >= sum(one.call_seconds) for wall, one in zip(walls, found.samples, strict=True)
    )
