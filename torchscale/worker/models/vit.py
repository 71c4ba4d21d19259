"""Vision transformers from transformers' configuration."""

from __future__ import annotations

from collections.abc import Mapping

from transformers import ViTConfig, ViTForImageClassification

from torchscale.catalog.models import OptionValue
from torchscale.worker.models.images import image_batches, image_inputs
from torchscale.worker.models.interface import Workload

_ARCHITECTURES: dict[str, dict[str, int]] = {
    "tiny-vit": {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 256,
        "patch_size": 8,
    },
    "vit-b": {
        "hidden_size": 768,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "intermediate_size": 3072,
    },
    "vit-l": {
        "hidden_size": 1024,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "intermediate_size": 4096,
    },
}


def build(name: str, options: Mapping[str, OptionValue]) -> Workload:
    """An image classifier over patches; options ``image_size`` (pixels) and ``num_classes``.

    Raises:
        ValueError: the image does not divide into patches.
    """
    images = image_inputs(options, "pixel_values", "labels")
    config = ViTConfig(
        num_labels=images.num_classes, image_size=images.image_size, **_ARCHITECTURES[name]
    )
    if images.image_size % config.patch_size:
        raise ValueError(
            f"image_size {images.image_size} does not divide by the patches of "
            f"{config.patch_size} pixels"
        )
    return Workload(ViTForImageClassification(config), image_batches(images), images=images)
