"""Collectives and the waits for them, where Python waits for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from torchscale.worker.measure import exchanges
from torchscale.worker.measure.exchanges import ExchangeMeter, blocked_seconds
from torchscale.worker.watch.marks import DRAIN, STEP, WAIT, WAIT_END, moment


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process."""
    store = torch._C._distributed_c10d.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def packed(kind: int, milliseconds: int) -> int:
    return milliseconds * 1_000_000 << 8 | kind


def kinds(marks: list[int]) -> list[int]:
    return [moment(mark)[0] for mark in marks]


def test_waits_are_noted_and_torch_is_left_as_it_was(alone: None) -> None:
    original, functional_wait = dist.Work.wait, functional.wait_tensor
    meter = ExchangeMeter()
    meter.start()
    meter.end_step()
    work = dist.all_reduce(torch.ones(4), async_op=True)
    assert work is not None
    work.wait()
    assert meter.count == 3
    meter.end_step()
    marks = meter.take()
    meter.stop()

    assert kinds(marks) == [STEP, WAIT, WAIT_END, STEP]
    assert 0 < blocked_seconds(marks) < 1
    assert meter.count == 0
    assert dist.Work.wait is original
    assert functional.wait_tensor is functional_wait


def test_each_collective_is_read_once(alone: None) -> None:
    meter = ExchangeMeter()
    meter.start()
    dist.all_reduce(torch.ones(4))
    dist.all_reduce(torch.ones(8))
    first = meter.read_batch(meter.take())
    dist.all_reduce(torch.ones(4))
    second = meter.read_batch(meter.take())
    meter.stop()

    assert first is not None
    assert second is not None
    assert [(first.names[key][1:]) for _, _, key in first.calls] == [
        ("all_reduce", 16),
        ("all_reduce", 32),
    ]
    assert [key for _, _, key in second.calls] == [first.calls[0][2]]
    assert [number for _, number, _ in second.calls] == [first.calls[-1][1] + 1]
    assert first.groups[first.names[0][0]] == (0,)
    assert kinds(list(second.marks)) == [DRAIN, DRAIN + 1, WAIT, WAIT_END]
    assert second.lost == 0


def test_what_is_kept_of_a_launch_is_bounded(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "_MOST_CALLS", 1)
    meter = ExchangeMeter()
    meter.start()
    for _ in range(2):
        dist.all_reduce(torch.ones(4))
    assert meter.read_batch(meter.take()) is not None
    assert meter.read_batch(meter.take()) is None
    meter.stop()


def test_a_wait_within_a_wait_counts_once() -> None:
    marks = [
        packed(WAIT, 10),
        packed(STEP, 11),
        packed(WAIT, 12),
        packed(WAIT_END, 14),
        packed(WAIT_END, 15),
        packed(WAIT, 20),
        packed(WAIT_END, 21),
    ]
    assert blocked_seconds(marks) == pytest.approx(0.006)


def test_a_wait_that_raises_is_noted(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(work: object) -> None:
        del work
        raise RuntimeError("aborted")

    monkeypatch.setattr(dist.Work, "wait", fails)
    meter = ExchangeMeter()
    meter.start()
    with pytest.raises(RuntimeError, match="aborted"):
        dist.all_reduce(torch.ones(4))
    marks = meter.take()
    meter.stop()
    assert kinds(marks) == [WAIT, WAIT_END]
