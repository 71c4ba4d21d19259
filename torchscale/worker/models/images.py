"""Batches of random images with random labels, for all image classifiers."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from torchscale.catalog.model_facts import OptionValue
from torchscale.worker.models.interface import BatchOfTensors, ImageInputs


def image_inputs(options: Mapping[str, OptionValue], pixels: str, labels: str) -> ImageInputs:
    """Inputs with the names ``pixels`` and ``labels``, of the sizes in the options ``image_size``
    and ``num_classes``."""
    return ImageInputs(pixels, labels, int(options["image_size"]), int(options["num_classes"]))


def image_batches(images: ImageInputs) -> Callable[[int, torch.Generator], BatchOfTensors]:
    """A ``make_batch`` of normally distributed images (batch, 3, size, size) and int64 labels
    (batch,)."""

    def make_batch(batch_size: int, generator: torch.Generator) -> BatchOfTensors:
        size = images.image_size
        return {
            images.pixels: torch.randn(batch_size, 3, size, size, generator=generator),
            images.labels: torch.randint(images.num_classes, (batch_size,), generator=generator),
        }

    return make_batch
