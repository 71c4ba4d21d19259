"""What all parallelism strategies have: a name, degrees, and the signals that they provide."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar

from torchscale.config.base import ConfigSection
from torchscale.config.degrees import Degrees


class Signal(str, Enum):
    """Signals that a strategy provides to the diagnosis, besides the phases of a step."""

    EXPOSED_SYNC = "exposed_sync"
    """Gradient sync that does not overlap with the backward pass."""
    WAITS = "waits"
    """Waits for collectives within the passes and the optimizer's step; on CPUs alone."""
    UNSYNCHRONIZED_COMPUTE = "unsynchronized_compute"
    """A rank's forward and backward pass without gradient sync."""
    BUCKETS = "buckets"
    """Sizes of the gradient buckets, and the time of their collectives without compute."""
    BUBBLE = "bubble"
    """Time in which a pipeline stage is idle."""


class StrategyBase(ConfigSection):
    """Base of all strategies. A strategy on one device is the plain model, unless stated otherwise.

    Attributes:
        signals: Signals for the diagnosis when training on several devices.
    """

    signals: ClassVar[frozenset[Signal]] = frozenset()

    name: str

    @property
    def splits(self) -> tuple[str, ...]:
        """Ways in which it splits a model's layers, as the catalog of models names them."""
        return ()

    def degrees(self, world_size: int) -> Degrees:
        """How ``world_size`` devices share the work.

        Raises:
            ValueError: they cannot; the text prints every degree.
        """
        return Degrees.filled(world_size)

    def pieces(self, degrees: Degrees) -> int:
        """Micro-batches that the strategy itself cuts a copy's batch into."""
        del degrees
        return 1
