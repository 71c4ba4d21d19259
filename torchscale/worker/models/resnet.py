"""ResNets from transformers' configuration: the shapes, parameters and FLOPs of torchvision's."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from transformers import ResNetConfig, ResNetForImageClassification

from torchscale.catalog.models import OptionValue
from torchscale.worker.models.interface import BatchOfTensors, Workload

_ARCHITECTURES: dict[str, dict[str, object]] = {
    "tiny-resnet": {
        "embedding_size": 16,
        "hidden_sizes": [16, 32, 64, 128],
        "depths": [1, 1, 1, 1],
        "layer_type": "basic",
    },
    "resnet18": {"hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2], "layer_type": "basic"},
    "resnet50": {"hidden_sizes": [256, 512, 1024, 2048], "depths": [3, 4, 6, 3], "layer_type": "bottleneck"},
}


def build(name: str, options: Mapping[str, OptionValue]) -> Workload:
    """An image classifier; options ``image_size`` (pixels) and ``num_classes``."""
    image_size, num_classes = int(options["image_size"]), int(options["num_classes"])
    module = ResNetForImageClassification(ResNetConfig(num_labels=num_classes, **_ARCHITECTURES[name]))

    def make_batch(batch_size: int, generator: torch.Generator) -> BatchOfTensors:
        return {
            "pixel_values": torch.randn(batch_size, 3, image_size, image_size, generator=generator),
            "labels": torch.randint(num_classes, (batch_size,), generator=generator),
        }

    return Workload(module, make_batch)
