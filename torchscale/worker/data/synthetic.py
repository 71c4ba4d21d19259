"""Random samples: drawn once, and used in turn. On the device no loader and no copy is needed, so that a step is
compute
and communication alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import torch

from torchscale.schema.record import DataUse
from torchscale.worker.data.interface import Share, generator_for
from torchscale.worker.models.interface import BatchOfTensors, Workload

POOL_STEPS = 4
"""Steps whose batches are made beforehand: one alone would be fitted within a few steps and its loss vanish."""


def sample_pool(workload: Workload, share: Share, seed: int) -> list[BatchOfTensors]:
    """One copy's batches of a few steps, on CPU. Each sample is drawn by itself, from the seed and its number, so that
    the samples of a step do not depend on how many ranks share them.

    Raises:
        TypeError: ``make_batch`` gives no dictionary of tensors.
        ValueError: a tensor's first dimension is not the batch.
    """
    return [_joined([_sample(workload, seed, number) for number in share.of_step(step)]) for step in range(POOL_STEPS)]


def place(
    tensor: torch.Tensor, device: torch.device, *, channels_last: bool, non_blocking: bool = False
) -> torch.Tensor:
    """A tensor of a batch on the device; images in the layout that the model has."""
    layout = torch.channels_last if channels_last and tensor.dim() == 4 else torch.preserve_format
    return tensor.to(device, non_blocking=non_blocking, memory_format=layout)


class SyntheticSource:
    """A small pool of random batches on the device."""

    epoch_samples: int | None = None

    def __init__(
        self, workload: Workload, *, share: Share, seed: int, device: torch.device, channels_last: bool
    ) -> None:
        pool = [
            {name: place(tensor, device, channels_last=channels_last) for name, tensor in batch.items()}
            for batch in sample_pool(workload, share, seed)
        ]
        self._batches = itertools.cycle(pool)

    def next_batch(self) -> BatchOfTensors:
        """The next batch of the pool."""
        return next(self._batches)

    def use(self) -> DataUse | None:
        """Nothing that the cell does not say."""
        return None

    def close(self) -> None:
        """Nothing to end."""


def _sample(workload: Workload, seed: int, number: int) -> BatchOfTensors:
    """A batch of one."""
    return dict(_checked(workload.make_batch(1, generator_for(seed, number)), 1))


def _joined(samples: list[BatchOfTensors]) -> BatchOfTensors:
    return {name: torch.cat([sample[name] for sample in samples]) for name in samples[0]}


def _checked(batch: object, batch_size: int) -> Iterable[tuple[str, torch.Tensor]]:
    """The items of a batch that is what ``make_batch`` promises; another size would make samples per second wrong.

    Raises:
        TypeError: it is not a dictionary of tensors.
        ValueError: a tensor's first dimension is not the batch.
    """
    if not isinstance(batch, Mapping):
        raise TypeError(f"make_batch must return a dictionary of tensors, not {type(batch).__name__}")
    for name, tensor in batch.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"make_batch must return a dictionary of tensors; {name!r} is {type(tensor).__name__}")
        if tensor.shape[:1] != (batch_size,):
            raise ValueError(
                f"make_batch({batch_size}, …): {name!r} has the shape {tuple(tensor.shape)}; "
                f"its first dimension must be the batch of {batch_size}"
            )
    return batch.items()
