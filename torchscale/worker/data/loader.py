"""Batches through torch's loader: made or read by worker processes, pinned, copied to the device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from torchscale.schema.cell import Loader
from torchscale.schema.record import DataUse
from torchscale.worker.data.interface import Share, generator_for
from torchscale.worker.data.synthetic import place
from torchscale.worker.models.interface import BatchOfTensors


class Samples(Protocol):
    """What a loader reads from: a number of samples that can be had in batches."""

    def __len__(self) -> int:
        """Samples of an epoch."""
        ...

    def __getitems__(self, numbers: list[int]) -> BatchOfTensors:
        """A batch of these samples, on CPU."""
        ...


@dataclass(frozen=True)
class LoadedData:
    """Data that a loader can take.

    Attributes:
        samples: Where batches are read.
        finish: Makes of a batch on the device what the model takes.
        shuffle_seed: With it, every epoch has an order of its own.
        use: What there is to say of the data.
    """

    samples: Samples
    finish: Callable[[BatchOfTensors], BatchOfTensors] = dict
    shuffle_seed: int | None = None
    use: DataUse | None = None


class LoaderSource:
    """A loader which gives each copy of the model its share of every step."""

    def __init__(
        self, data: LoadedData, *, share: Share, settings: Loader, device: torch.device, channels_last: bool
    ) -> None:
        """Start the loader's processes.

        Raises:
            ValueError: an epoch has fewer samples than a step takes.
        """
        samples = data.samples
        if len(samples) < share.all_samples:
            raise ValueError(f"the data has {len(samples)} samples, fewer than one step's {share.all_samples}")
        # Random samples are made for a few steps; how many make an epoch is the cell's to say.
        self.epoch_samples: int | None = None if data.use is None else len(samples)
        self._device, self._channels_last, self._data = device, channels_last, data
        self._steps = 0
        self._share = share
        workers = settings.workers
        loader: DataLoader[BatchOfTensors] = DataLoader(
            _AsDataset(samples),
            batch_sampler=_Order(len(samples), share, data.shuffle_seed),
            num_workers=workers,
            pin_memory=settings.pin_memory and device.type != "cpu",
            prefetch_factor=settings.prefetch if workers else None,
            collate_fn=_as_it_is,  # type: ignore[arg-type] # torch thinks of lists of samples
        )
        self._batches: Iterator[BatchOfTensors] | None = iter(loader)

    def next_batch(self) -> BatchOfTensors:
        """Wait for the next batch and copy it to the device."""
        assert self._batches is not None  # noqa: S101 - nobody asks after close
        batch = next(self._batches)
        self._steps += 1
        moved = {
            name: place(tensor, self._device, channels_last=self._channels_last, non_blocking=True)
            for name, tensor in batch.items()
        }
        return self._data.finish(moved)

    def use(self) -> DataUse | None:
        """What the source's owner says, with how often the data was gone through."""
        if self._data.use is None or self.epoch_samples is None:
            return None
        return self._data.use.model_copy(update={"epochs": self._steps * self._share.all_samples / self.epoch_samples})

    def close(self) -> None:
        """End the loader's processes."""
        self._batches = None


class Pool:
    """Batches made beforehand as samples to be loaded: what loader and copy cost by themselves."""

    def __init__(self, batches: list[BatchOfTensors], share: Share) -> None:
        self._batches, self._share = batches, share

    def __len__(self) -> int:
        """Samples of all copies."""
        return len(self._batches) * self._share.all_samples

    def __getitems__(self, numbers: list[int]) -> BatchOfTensors:
        """A copy of this copy's samples, put together one by one as a loader does."""
        step, _ = divmod(numbers[0], self._share.all_samples)
        first = self._share.of_step(step)[0]
        batch = self._batches[step]
        return {name: torch.stack([tensor[number - first] for number in numbers]) for name, tensor in batch.items()}


class _AsDataset(Dataset[BatchOfTensors]):
    """torch's loader asks for ``__getitems__`` where there is one."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __getitem__(self, number: int) -> BatchOfTensors:
        return self._samples.__getitems__([number])

    def __getitems__(self, numbers: list[int]) -> BatchOfTensors:
        return self._samples.__getitems__(numbers)


class _Order(Sampler[list[int]]):
    """Endless: this copy's samples of each step; what is left of an epoch that does not fill a step is left out."""

    def __init__(self, samples: int, share: Share, shuffle_seed: int | None) -> None:
        self._samples, self._share, self._seed = samples, share, shuffle_seed

    def __iter__(self) -> Iterator[list[int]]:
        epoch = 0
        while True:
            order = self._order(epoch)
            for step in range(self._samples // self._share.all_samples):
                numbers = self._share.of_step(step)
                yield list(numbers) if order is None else order[numbers.start : numbers.stop].tolist()
            epoch += 1

    def _order(self, epoch: int) -> torch.Tensor | None:
        if self._seed is None:
            return None
        return torch.randperm(self._samples, generator=generator_for(self._seed, epoch))


def _as_it_is(batch: BatchOfTensors) -> BatchOfTensors:
    return batch
