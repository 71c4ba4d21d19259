"""Random samples, drawn once and used in turn. They lie on the device: no loader and no copy is
needed, so that a step is compute and communication only."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import torch

from torchscale.schema.launch.rank import DataUse
from torchscale.worker.data.interface import SampleShare, generator_for
from torchscale.worker.models.interface import BatchOfTensors, Workload

POOL_STEPS = 4
"""Steps whose batches are drawn in advance: a model would fit a single batch within a few steps,
and its loss vanish."""


def sample_pool(
    workload: Workload, share: SampleShare, seed: int, *, steps: int = POOL_STEPS
) -> list[BatchOfTensors]:
    """One copy's batches of a few steps, on CPU. Each sample is drawn by itself, from the seed and
    its number, so that the samples of a step do not depend on how many ranks share them.

    Raises:
        TypeError: ``make_batch`` gives no dictionary of tensors.
        ValueError: a tensor's first dimension is not the batch.
    """
    return [
        _joined([_sample(workload, seed, number) for number in share.of_step(step)])
        for step in range(steps)
    ]


def to_device(
    tensor: torch.Tensor, device: torch.device, *, channels_last: bool, non_blocking: bool = False
) -> torch.Tensor:
    """``tensor`` on ``device``; with ``channels_last``, four-dimensional ones in that memory
    format."""
    layout = torch.channels_last if channels_last and tensor.dim() == 4 else torch.preserve_format
    return tensor.to(device, non_blocking=non_blocking, memory_format=layout)


class SyntheticSource:
    """A small pool of random batches on the device."""

    epoch_samples: int | None = None

    def __init__(
        self, pool: Iterable[BatchOfTensors], *, device: torch.device, channels_last: bool
    ) -> None:
        on_device = [
            {
                name: to_device(tensor, device, channels_last=channels_last)
                for name, tensor in batch.items()
            }
            for batch in pool
        ]
        self._batches = itertools.cycle(on_device)

    def next_batch(self) -> BatchOfTensors:
        """The next batch of the pool, in turn."""
        return next(self._batches)

    def use(self) -> DataUse | None:
        """``None``: the cell describes synthetic data completely."""
        return None

    def close(self) -> None:
        """Nothing to stop: the pool has no processes."""


def _sample(workload: Workload, seed: int, number: int) -> BatchOfTensors:
    """A batch of one sample, drawn from the seed and its number."""
    return dict(_checked(workload.make_batch(1, generator_for(seed, number)), 1))


def _joined(samples: list[BatchOfTensors]) -> BatchOfTensors:
    return {name: torch.cat([sample[name] for sample in samples]) for name in samples[0]}


def _checked(batch: object, batch_size: int) -> Iterable[tuple[str, torch.Tensor]]:
    """The items of ``batch``, checked: another size would make samples per second wrong.

    Raises:
        TypeError: it is not a dictionary of tensors.
        ValueError: a tensor's first dimension is not the batch.
    """
    if not isinstance(batch, Mapping):
        raise TypeError(
            f"make_batch must return a dictionary of tensors, not {type(batch).__name__}"
        )
    for name, tensor in batch.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"make_batch must return a dictionary of tensors; {name!r} is "
                f"{type(tensor).__name__}"
            )
        if tensor.shape[:1] != (batch_size,):
            raise ValueError(
                f"make_batch({batch_size}, …): {name!r} has the shape {tuple(tensor.shape)}; "
                f"its first dimension must be the batch of {batch_size}"
            )
    return batch.items()
