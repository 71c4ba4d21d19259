"""Batches through torch's loader: made or read by worker processes, pinned, copied to the
device."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.queues import Queue
from typing import NoReturn, Protocol

import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from torchscale.schema.cells.training import Loader
from torchscale.schema.launch.rank import DataUse
from torchscale.util.processes.exit import end_with_parent, exit_at_once
from torchscale.worker.data.interface import SampleShare, generator_for
from torchscale.worker.data.synthetic import to_device
from torchscale.worker.models.interface import BatchOfTensors


class Samples(Protocol):
    """A finite set of samples that a loader reads in batches."""

    def __len__(self) -> int:
        """Number of samples in an epoch."""
        ...

    def __getitems__(self, numbers: list[int]) -> BatchOfTensors:
        """The samples with these numbers as one batch of CPU tensors."""
        ...


@dataclass(frozen=True)
class LoadedData:
    """A set of samples and how to use it.

    Attributes:
        samples: Where batches are read.
        finish: Turns a batch on the device into the model's inputs.
        shuffle_seed: Seed of the order, which differs from epoch to epoch; ``None`` for the order
            of the samples.
        use: Facts on the data for the record; ``None`` for random samples.
    """

    samples: Samples
    finish: Callable[[BatchOfTensors], BatchOfTensors] = dict
    shuffle_seed: int | None = None
    use: DataUse | None = None


class LoaderSource:
    """Batches of torch's ``DataLoader``; each copy of the model gets its share of every step."""

    def __init__(
        self,
        data: LoadedData,
        *,
        share: SampleShare,
        settings: Loader,
        device: torch.device,
        channels_last: bool,
    ) -> None:
        """Start the loader's processes.

        Raises:
            ValueError: the data has fewer samples than one step of all copies takes.
        """
        samples = data.samples
        if len(samples) < share.all_samples:
            raise ValueError(
                f"the data has {len(samples)} samples, fewer than the {share.all_samples} of one "
                "step; "
                "lower batch_sizes or provide more data"
            )
        # Random samples exist for a few steps only; the cell's num_samples defines their epoch.
        self.epoch_samples: int | None = None if data.use is None else len(samples)
        self._device, self._channels_last, self._data = device, channels_last, data
        self._steps = 0
        self._share = share
        workers = settings.workers
        loader: DataLoader[BatchOfTensors] = DataLoader(
            _AsDataset(samples),
            batch_sampler=_EndlessSampler(len(samples), share, data.shuffle_seed),
            num_workers=workers,
            pin_memory=settings.pin_memory and device.type != "cpu",
            prefetch_factor=settings.prefetch if workers else None,
            worker_init_fn=_prepare_process,
            collate_fn=_identity,  # type: ignore[arg-type] # torch expects lists of samples
        )
        self._batches: Iterator[BatchOfTensors] | None = iter(loader)

    def next_batch(self) -> BatchOfTensors:
        """Wait for the loader's next batch and copy it to the device."""
        assert self._batches is not None  # noqa: S101 - no batch is requested after close
        batch = next(self._batches)
        self._steps += 1
        moved = {
            name: to_device(
                tensor, self._device, channels_last=self._channels_last, non_blocking=True
            )
            for name, tensor in batch.items()
        }
        return self._data.finish(moved)

    def use(self) -> DataUse | None:
        """The facts on the data, with the number of epochs so far; ``None`` for random samples."""
        if self._data.use is None or self.epoch_samples is None:
            return None
        return self._data.use.model_copy(
            update={"epochs": self._steps * self._share.all_samples / self.epoch_samples}
        )

    def close(self) -> None:
        """Stop the loader's processes."""
        self._batches = None


class Pool:
    """Random batches drawn in advance, read through a loader: they show what loader and copy
    cost."""

    def __init__(self, batches: list[BatchOfTensors], share: SampleShare) -> None:
        self._batches, self._share = batches, share

    def __len__(self) -> int:
        """Number of samples of all copies in the pool."""
        return len(self._batches) * self._share.all_samples

    def __getitems__(self, numbers: list[int]) -> BatchOfTensors:
        """The samples with these numbers of this copy's share, stacked one by one as a loader
        does."""
        step, _ = divmod(numbers[0], self._share.all_samples)
        first = self._share.of_step(step)[0]
        batch = self._batches[step]
        return {
            name: torch.stack([tensor[number - first] for number in numbers])
            for name, tensor in batch.items()
        }


class _AsDataset(Dataset[BatchOfTensors]):
    """Adapts :class:`Samples` to torch's ``Dataset``, whose loader prefers ``__getitems__``."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples

    def __getitem__(self, number: int) -> BatchOfTensors:
        return self._samples.__getitems__([number])

    def __getitems__(self, numbers: list[int]) -> BatchOfTensors:
        return self._samples.__getitems__(numbers)


class _EndlessSampler(Sampler[list[int]]):
    """Endless batches of sample numbers for this copy; an epoch's last, incomplete step is left
    out."""

    def __init__(self, samples: int, share: SampleShare, shuffle_seed: int | None) -> None:
        self._samples, self._share, self._seed = samples, share, shuffle_seed

    def __iter__(self) -> Iterator[list[int]]:
        epoch = 0
        while True:
            order = self._order(epoch)
            for step in range(self._samples // self._share.all_samples):
                numbers = self._share.of_step(step)
                if order is None:
                    yield list(numbers)
                else:
                    yield order[numbers.start : numbers.stop].tolist()
            epoch += 1

    def _order(self, epoch: int) -> torch.Tensor | None:
        if self._seed is None:
            return None
        return torch.randperm(self._samples, generator=generator_for(self._seed, epoch))


def _prepare_process(number: int) -> None:
    """Set up a loader process: it ends with its rank (torch's own look at its parent takes
    seconds), and when a batch cannot be handed over, as where /dev/shm is full. Python's queue
    drops that batch, and the rank would wait for it for ever."""
    del number
    rank = multiprocessing.parent_process()
    if rank is not None and rank.pid is not None:
        end_with_parent(rank.pid)
    Queue._on_queue_feeder_error = staticmethod(_end_process)  # type: ignore[attr-defined]


def _end_process(error: BaseException, batch: object) -> NoReturn:
    del batch
    traceback.print_exception(error)
    exit_at_once(1)


def _identity(batch: BatchOfTensors) -> BatchOfTensors:
    return batch
