"""Image classifiers of other libraries, which return logits; with random weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from torch import Tensor, nn
from torch.nn import functional

from torchscale.catalog.model_facts import OptionValue
from torchscale.worker.models.images import image_batches, image_inputs
from torchscale.worker.models.interface import BatchOfTensors, Workload


def build_classifier(
    name: str,
    options: Mapping[str, OptionValue],
    known: Collection[str],
    make: Callable[[str, int], nn.Module],
) -> Workload:
    """The classifier that ``make(NAME, classes)`` returns for ``name``, which is ``library:NAME``.

    Raises:
        ValueError: NAME is not in ``known``.
    """
    library, _, plain = name.partition(":")
    if plain not in known:
        raise ValueError(f"{library} has no model {plain!r}")
    images = image_inputs(options, "x", "labels")

    def loss(output: object, batch: BatchOfTensors) -> Tensor:
        # Some return an auxiliary classifier beside the logits while they train (GoogLeNet,
        # Inception).
        logits = output if isinstance(output, Tensor) else getattr(output, "logits", None)
        if not isinstance(logits, Tensor):
            raise TypeError(f"{name} returned {type(output).__name__}, not logits")
        return functional.cross_entropy(logits.float(), batch["labels"])

    return Workload(
        _Positional(make(plain, images.num_classes)),
        image_batches(images),
        images=images,
        loss=loss,
        forward_keys=frozenset({"x"}),
    )


class _Positional(nn.Module):
    """These libraries name their input differently; it is always the first argument."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> object:
        """``x`` (batch, 3, height, width) → logits (batch, classes), or an object that has them."""
        return self.net(x)
