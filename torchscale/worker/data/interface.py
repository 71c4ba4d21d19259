"""Where batches come from. A new source is one new file with a class that keeps :class:`Source`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch

from torchscale.schema.record import DataUse
from torchscale.worker.models.interface import BatchOfTensors


class Source(Protocol):
    """An endless supply of batches on the rank's device.

    All ranks together take consecutive samples: the same ones whatever the number of ranks, each copy of the model its
    own share of them.
    """

    @property
    def epoch_samples(self) -> int | None:
        """Samples of an epoch; ``None`` where the cell says."""
        ...

    def next_batch(self) -> BatchOfTensors:
        """The next batch; the time this takes is the step's data wait."""
        ...

    def use(self) -> DataUse | None:
        """What there is to say of the data once it has been measured; ``None`` for nothing."""
        ...

    def close(self) -> None:
        """End what the source started."""
        ...


class NoSource:
    """For ranks in the middle of a pipeline, which never look at a batch."""

    epoch_samples: int | None = None

    def next_batch(self) -> BatchOfTensors:
        """Nothing."""
        return {}

    def use(self) -> DataUse | None:
        """Nothing."""
        return None

    def close(self) -> None:
        """Nothing to end."""


def generator_for(seed: int, number: int) -> torch.Generator:
    """Randomness of one of many things drawn under one seed. torch's CPU generator looks at 32 bits of a seed alone."""
    return torch.Generator().manual_seed((seed * 1_000_003 + number) % 2**32)


@dataclass(frozen=True)
class Share:
    """One copy's share of every step's samples, which all copies count together.

    Attributes:
        samples: Of this copy, per step.
        index: Which copy, from 0.
        copies: How many there are.
    """

    samples: int
    index: int
    copies: int

    @property
    def all_samples(self) -> int:
        """Of all copies, per step."""
        return self.samples * self.copies

    def of_step(self, step: int) -> range:
        """Numbers of this copy's samples in a step, counted over all steps and copies."""
        begin = step * self.all_samples + self.index * self.samples
        return range(begin, begin + self.samples)
