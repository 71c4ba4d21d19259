"""Where batches come from. A new source is one new file with a class that has ``next_batch``."""

from __future__ import annotations

from typing import Protocol

from torchscale.worker.models.interface import BatchOfTensors


class Source(Protocol):
    """An endless supply of batches on the rank's device, different for every rank."""

    def next_batch(self) -> BatchOfTensors:
        """The next batch; the time this takes is the step's data wait."""
        ...
