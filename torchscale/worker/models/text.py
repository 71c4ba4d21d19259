"""Batches of random tokens of one length, for all language models."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from torchscale.catalog.model_facts import OptionValue
from torchscale.worker.models.interface import BatchOfTensors


def sequence_length(options: Mapping[str, OptionValue], maximum: int | None, name: str) -> int:
    """The option ``sequence_length``, checked against the model's positions, if it numbers them.

    Raises:
        ValueError: it exceeds ``maximum``.
    """
    length = int(options["sequence_length"])
    if maximum and length > maximum:
        raise ValueError(f"sequence_length {length} exceeds the {maximum} positions of {name}")
    return length


def token_batches(vocabulary: int, length: int) -> Callable[[int, torch.Generator], BatchOfTensors]:
    """A ``make_batch`` of ``input_ids`` and ``labels``, both of shape (batch, length); every
    position counts in the loss."""

    def make_batch(batch_size: int, generator: torch.Generator) -> BatchOfTensors:
        def tokens() -> torch.Tensor:
            return torch.randint(vocabulary, (batch_size, length), generator=generator)

        return {"input_ids": tokens(), "labels": tokens()}

    return make_batch
