"""What else ran while a size was measured is recorded with it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from tests.factories import cpu_task
from torchscale.config.choices import Operation
from torchscale.schema.cells.collectives import CollectivesCell, CollectivesRank
from torchscale.worker.machine import collective_sweep
from torchscale.worker.machine.collective_operations import AllReduce, Collective
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


def measured(
    ranks: Ranks,
    directory: Path,
    operations: tuple[Operation, ...] = ("all_reduce", "barrier"),
    seconds: float | None = None,
) -> CollectivesRank:
    cell = CollectivesCell(
        operations=operations,
        dtypes=("fp32",),
        min_bytes=1024,
        max_bytes=8192,
        iterations=5,
        warmup=1,
        world_size=1,
        device="cpu",
        seconds=seconds,
    )
    task = cpu_task(cell, device_indices=(0,))
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
    monkeypatch.setattr(collective_sweep, "_STRETCH_SECONDS", 0.0)
    found = measured(alone, tmp_path)
    walls = [one.host_load.wall_seconds for one in found.samples if one.host_load is not None]
    assert len(set(walls)) == 5
    assert all(
        wall >= sum(one.call_seconds) for wall, one in zip(walls, found.samples, strict=True)
    )


def buffers_of(live: list[weakref.ref[Tensor]]) -> int:
    """How many of these tensors exist."""
    return sum(reference() is not None for reference in live)


def test_buffers_are_freed_before_the_next_are_allocated(
    alone: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    live: list[weakref.ref[Tensor]] = []
    real = Collective.empty

    def empty(self: Collective, elements: int, kind: torch.dtype) -> Tensor:
        assert buffers_of(live) <= len(live) % 2, "an earlier size still holds its buffers"
        made = real(self, elements, kind)
        live.append(weakref.ref(made))
        return made

    monkeypatch.setattr(Collective, "empty", empty)
    found = measured(alone, tmp_path, ("all_to_all",))
    assert len(found.samples) == 4
    assert len(live) == 8, "an input and an output of each size"


@pytest.mark.parametrize("step", ["empty", "fill", "wrong_elements"])
def test_a_size_that_does_not_fit_is_refused_and_the_others_are_kept(
    step: str, alone: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., object] = getattr(Collective, step)

    def short_of_memory(self: Collective, *arguments: object) -> object:
        if self.payload_bytes == 4096:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 4 KiB.\nmore")
        return real(self, *arguments)

    monkeypatch.setattr(Collective, step, short_of_memory)
    found = measured(alone, tmp_path, ("all_reduce", "broadcast"))
    assert [(one.operation, one.payload_bytes) for one in found.samples] == [
        ("all_reduce", 1024),
        ("all_reduce", 2048),
        ("broadcast", 1024),
        ("broadcast", 2048),
    ]
    assert found.unsupported == {
        f"{operation} fp32 4.00 KiB": "rank 0: CUDA out of memory. Tried to allocate 4 KiB."
        for operation in ("all_reduce", "broadcast")
    }
    assert all(one.host_load is not None for one in found.samples)


def test_no_rank_goes_on_where_another_has_not_enough_memory(
    alone: Ranks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gathered(self: Ranks, refusal: str) -> list[str]:
        return [refusal, "rank 1: CUDA out of memory"]

    def added_up(self: Ranks, values: Tensor) -> Tensor:
        return values + 1

    def never(self: Collective) -> None:
        raise AssertionError("the collective would wait for rank 1")

    monkeypatch.setattr(Ranks, "gather_objects", gathered)
    monkeypatch.setattr(Ranks, "add_up", added_up)
    monkeypatch.setattr(AllReduce, "call", never)
    found = measured(alone, tmp_path, ("all_reduce",))
    assert found.samples == ()
    assert found.unsupported == {"all_reduce fp32 1.00 KiB": "rank 1: CUDA out of memory"}


def test_a_sweep_without_time_leaves_out_what_takes_longer_and_says_so(
    alone: Ranks, tmp_path: Path
) -> None:
    found = measured(alone, tmp_path, ("all_reduce",), seconds=1e-9)
    assert found.samples == ()
    (what,) = found.unsupported
    assert what == "all_reduce fp32 1.00 KiB"
    assert "--full measures it" in found.unsupported[what]


def test_a_sweep_with_time_makes_all_calls(alone: Ranks, tmp_path: Path) -> None:
    found = measured(alone, tmp_path, ("all_reduce",), seconds=600.0)
    assert [len(one.call_seconds) for one in found.samples] == [5] * 4
