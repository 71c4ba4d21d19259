"""``torchvision:NAME``: any of torchvision's classifiers, with random weights."""

from __future__ import annotations

from collections.abc import Mapping

from torchvision import models  # an optional library; a build that does not fit torch's breaks here

from torchscale.catalog.model_facts import OptionValue
from torchscale.worker.models.classifier import build_classifier
from torchscale.worker.models.interface import Workload


def build(name: str, options: Mapping[str, OptionValue]) -> Workload:
    """An image classifier of torchvision; options ``image_size`` (pixels) and ``num_classes``.

    Raises:
        ValueError: torchvision has no such model.
    """
    return build_classifier(
        name,
        options,
        models.list_models(module=models),
        lambda plain, classes: models.get_model(plain, weights=None, num_classes=classes),
    )
