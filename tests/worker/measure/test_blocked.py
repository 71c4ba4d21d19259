"""Waits for collectives, timed where Python waits for them."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from torchscale.worker.measure.blocked import BlockedMeter


@pytest.fixture
def alone() -> Iterator[None]:
    """A process group of this process."""
    store = torch._C._distributed_c10d.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_waits_are_counted_and_torch_is_left_as_it_was(alone: None) -> None:
    original, functional_wait = dist.Work.wait, functional.wait_tensor
    meter = BlockedMeter()
    meter.start()
    work = dist.all_reduce(torch.ones(4), async_op=True)
    assert work is not None
    work.wait()
    first = meter.seconds
    dist.all_reduce(torch.ones(4))
    meter.stop()
    counted = meter.seconds
    dist.all_reduce(torch.ones(4))

    assert 0 < first < counted < 1
    assert meter.seconds == counted
    assert dist.Work.wait is original
    assert functional.wait_tensor is functional_wait


def test_a_wait_within_a_wait_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = BlockedMeter()
    inner = meter._timed(lambda: time.sleep(0.02))
    outer = meter._timed(inner)
    outer()

    assert 0.02 <= meter.seconds < 0.04


def test_a_wait_that_raises_is_counted() -> None:
    meter = BlockedMeter()

    def fails() -> None:
        time.sleep(0.01)
        raise RuntimeError("aborted")

    with pytest.raises(RuntimeError, match="aborted"):
        meter._timed(fails)()
    assert meter.seconds >= 0.01
