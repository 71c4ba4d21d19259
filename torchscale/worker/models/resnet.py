"""ResNets from transformers' configuration: the shapes, parameters and FLOPs of torchvision's."""

from __future__ import annotations

from collections.abc import Mapping

from transformers import ResNetConfig, ResNetForImageClassification

from torchscale.catalog.models import OptionValue
from torchscale.worker.models.images import image_batches, image_inputs
from torchscale.worker.models.interface import Workload

_ARCHITECTURES: dict[str, dict[str, object]] = {
    "tiny-resnet": {
        "embedding_size": 16,
        "hidden_sizes": [16, 32, 64, 128],
        "depths": [1, 1, 1, 1],
        "layer_type": "basic",
    },
    "resnet18": {
        "hidden_sizes": [64, 128, 256, 512],
        "depths": [2, 2, 2, 2],
        "layer_type": "basic",
    },
    "resnet50": {
        "hidden_sizes": [256, 512, 1024, 2048],
        "depths": [3, 4, 6, 3],
        "layer_type": "bottleneck",
    },
    "resnet152": {
        "hidden_sizes": [256, 512, 1024, 2048],
        "depths": [3, 8, 36, 3],
        "layer_type": "bottleneck",
    },
}


def build(name: str, options: Mapping[str, OptionValue]) -> Workload:
    """An image classifier; options ``image_size`` (pixels) and ``num_classes``."""
    images = image_inputs(options, "pixel_values", "labels")
    module = ResNetForImageClassification(
        ResNetConfig(num_labels=images.num_classes, **_ARCHITECTURES[name])
    )
    return Workload(module, image_batches(images), images=images)
