"""What a way of spreading a model over devices gives, besides the model itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class Parallel:
    """A model as a strategy runs it, and which signals of the diagnosis the strategy supports.

    Attributes:
        model: To be called for the forward pass.
        no_sync: Context in which the backward pass exchanges nothing, so that a rank's own compute can be timed;
            ``None`` where the strategy cannot do without its exchange.
        gradients_first: Whether the exchange that the step waits for comes after the last gradient is computed, so
            that the time from there to the end of the backward pass is exposed synchronisation.
        bucket_bytes: Gradients of a step as they are sent, known after a few steps; ``None`` without buckets.
    """

    model: nn.Module
    no_sync: Callable[[], AbstractContextManager[None]] | None = None
    gradients_first: bool = False
    bucket_bytes: Callable[[], tuple[int, ...]] | None = None
