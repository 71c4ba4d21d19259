"""``timm:NAME``: any of timm's classifiers, with random weights."""

from __future__ import annotations

from collections.abc import Mapping

import timm

from torchscale.catalog.model_facts import OptionValue
from torchscale.worker.models.classifier import build_classifier
from torchscale.worker.models.interface import Workload


def build(name: str, options: Mapping[str, OptionValue]) -> Workload:
    """An image classifier of timm; options ``image_size`` (pixels) and ``num_classes``.

    Raises:
        ValueError: timm has no such model.
    """
    return build_classifier(
        name,
        options,
        timm.list_models(),
        lambda plain, classes: timm.create_model(plain, pretrained=False, num_classes=classes),
    )
