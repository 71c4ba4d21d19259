from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchscale.worker.data.interface import SampleShare
from torchscale.worker.data.synthetic import SyntheticSource, sample_pool
from torchscale.worker.models.interface import BatchOfTensors, Workload

CPU = torch.device("cpu")


def images(batch_size: int, generator: torch.Generator) -> BatchOfTensors:
    return {
        "x": torch.randn(batch_size, 3, 8, 8, generator=generator),
        "y": torch.arange(batch_size),
    }


def source(
    seed: int = 0, make_batch: Any = images, *, channels_last: bool = False
) -> SyntheticSource:
    workload = Workload(nn.Identity(), make_batch)
    share = SampleShare(4, index=0, copies=1)
    pool = sample_pool(workload, share, seed)
    return SyntheticSource(pool, device=CPU, channels_last=channels_last)


def test_a_few_batches_come_in_turn() -> None:
    found = source()
    batches = [found.next_batch() for _ in range(8)]
    assert all(batches[index] is batches[index + 4] for index in range(4))
    for index in range(1, 4):
        assert not torch.equal(batches[0]["x"], batches[index]["x"])


def test_a_seed_decides_the_data_and_torchs_own_seed_does_not() -> None:
    torch.manual_seed(1)
    first = source(seed=3).next_batch()["x"]
    torch.manual_seed(2)
    assert torch.equal(first, source(seed=3).next_batch()["x"])
    assert not torch.equal(first, source(seed=4).next_batch()["x"])


def test_channels_last_is_for_images_alone() -> None:
    batch = source(channels_last=True).next_batch()
    assert batch["x"].is_contiguous(memory_format=torch.channels_last)
    assert not batch["x"].is_contiguous()
    assert torch.equal(batch["x"], source().next_batch()["x"])


@pytest.mark.parametrize(
    ("batch", "error", "told"),
    [
        (torch.zeros(4), TypeError, "must return a dictionary of tensors, not Tensor"),
        ((torch.zeros(4),), TypeError, "must return a dictionary of tensors, not tuple"),
        ({"x": [1, 2, 3, 4]}, TypeError, "'x' is list"),
        (
            {"x": torch.zeros(2, 4)},
            ValueError,
            r"'x' has the shape \(2, 4\); its first dimension must be the batch of 1",
        ),
        ({"x": torch.tensor(1.0)}, ValueError, r"'x' has the shape \(\)"),
    ],
)
def test_a_batch_that_is_none_or_of_another_size(
    batch: object, error: type[Exception], told: str
) -> None:
    """Fewer samples than asked would show as a throughput that is too high."""
    with pytest.raises(error, match=told):
        source(make_batch=lambda size, generator: batch)
