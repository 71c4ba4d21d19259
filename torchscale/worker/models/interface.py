"""What a model must offer to be trained here. A new family is one new file that returns a :class:`Workload`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

BatchOfTensors = dict[str, Tensor]
"""Keyword arguments of the module's ``forward``; every tensor's first dimension is the batch."""


@dataclass(frozen=True)
class Workload:
    """A module and how to feed it.

    Attributes:
        module: On CPU. ``forward(**batch)`` returns the loss: a scalar tensor, or an object or mapping with ``loss``.
        make_batch: ``(batch_size, generator) → batch`` of CPU tensors drawn from ``generator`` alone.
        tokens_per_sample: Length of a sequence; ``None`` where samples have no tokens.
    """

    module: nn.Module
    make_batch: Callable[[int, torch.Generator], BatchOfTensors]
    tokens_per_sample: int | None = None


def loss_of(output: object) -> Tensor:
    """The loss in what ``forward`` returned.

    Raises:
        TypeError: there is none, or it is not a scalar tensor.
    """
    loss = output
    if isinstance(output, dict):
        loss = output.get("loss")
    elif not isinstance(output, Tensor):
        loss = getattr(output, "loss", None)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise TypeError(
            f"forward(**batch) must return a scalar loss, or an object or mapping with one as 'loss'; "
            f"got {type(output).__name__}"
        )
    return loss
