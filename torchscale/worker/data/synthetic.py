"""Random batches that lie on the device: no loader, no copy, so that a step is compute and communication alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import torch

from torchscale.worker.models.interface import BatchOfTensors, Workload

_POOL = 4
"""Batches made beforehand and used in turn: one alone would be fitted within a few steps and its loss vanish."""


class SyntheticSource:
    """A small pool of random batches, drawn from ``seed + rank``."""

    def __init__(
        self, workload: Workload, *, batch_size: int, seed: int, device: torch.device, channels_last: bool
    ) -> None:
        generator = torch.Generator().manual_seed(seed)
        layout = torch.channels_last if channels_last else torch.contiguous_format

        def place(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(device, memory_format=layout if tensor.dim() == 4 else torch.preserve_format)

        pool = [
            {name: place(tensor) for name, tensor in _checked(workload.make_batch(batch_size, generator), batch_size)}
            for _ in range(_POOL)
        ]
        self._batches = itertools.cycle(pool)

    def next_batch(self) -> BatchOfTensors:
        """The next batch of the pool."""
        return next(self._batches)


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
