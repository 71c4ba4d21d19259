"""The interface of sources of batches. A new source is one new file with a class that implements
:class:`Source`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from torchscale.schema.launch.rank import DataUse
from torchscale.worker.models.interface import BatchOfTensors


class Source(Protocol):
    """Endless batches on the rank's device.

    All ranks together take consecutive samples, which do not depend on the number of ranks; each
    copy of the model takes its share of them.
    """

    @property
    def epoch_samples(self) -> int | None:
        """Samples of an epoch; ``None`` where the cell's ``num_samples`` defines it."""
        ...

    def next_batch(self) -> BatchOfTensors:
        """The next batch; the time this takes is the step's data wait."""
        ...

    def use(self) -> DataUse | None:
        """Facts on the data for the record, after the measurement; ``None`` for synthetic data."""
        ...

    def close(self) -> None:
        """Stop the processes that the source started."""
        ...


class NoSource:
    """A source without batches, for ranks in the middle of a pipeline."""

    epoch_samples: int | None = None

    def next_batch(self) -> BatchOfTensors:
        """An empty batch: this rank runs neither the first nor the last stage."""
        return {}

    def use(self) -> DataUse | None:
        """``None``: no data is used."""
        return None

    def close(self) -> None:
        """Nothing to stop: no process was started."""


def generator_for(seed: int, number: int) -> torch.Generator:
    """A CPU generator for item ``number`` under ``seed``.

    The two are mixed with a prime, since neighbouring pairs must not collide, and cut to the 32
    bits of a seed that torch's CPU generator uses.
    """
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**32)


@dataclass(frozen=True)
class SampleShare:
    """One copy's share of every step's samples, which all copies count together.

    Attributes:
        samples: Samples of this copy per step.
        index: Which copy, from 0.
        copies: Number of copies.
    """

    samples: int
    index: int
    copies: int

    @property
    def all_samples(self) -> int:
        """Samples of all copies per step."""
        return self.samples * self.copies

    def of_step(self, step: int) -> range:
        """Numbers of this copy's samples in a step, counted over all steps and copies."""
        begin = step * self.all_samples + self.index * self.samples
        return range(begin, begin + self.samples)
