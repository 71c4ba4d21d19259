"""Random batches that lie on the device: no loader, no copy, so that a step is compute and communication alone."""

from __future__ import annotations

import itertools

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
            {name: place(tensor) for name, tensor in workload.make_batch(batch_size, generator).items()}
            for _ in range(_POOL)
        ]
        self._batches = itertools.cycle(pool)

    def next_batch(self) -> BatchOfTensors:
        """The next batch of the pool."""
        return next(self._batches)
