"""What a model must offer to be trained here. A new family is one new file that returns a :class:`Workload`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

BatchOfTensors = dict[str, Tensor]
"""Keyword arguments of the module's ``forward``; every tensor's first dimension is the batch."""


@dataclass(frozen=True)
class ImageInputs:
    """Names and shape of an image model's inputs, so that real images can take the place of random ones.

    Attributes:
        pixels: Keyword of the images: float, (batch, 3, ``image_size``, ``image_size``).
        labels: Keyword of the classes: int64, (batch,).
        image_size: In pixels.
        num_classes: Labels lie below it.
    """

    pixels: str
    labels: str
    image_size: int
    num_classes: int


@dataclass(frozen=True)
class PipelineSplit:
    """How a model is cut into consecutive stages.

    Attributes:
        layers: How many layers can be dealt out.
        stage: ``(module, layers, first, last) → stage``: a module with the given range of layers, the embedding if
        it is
            the first stage and the head if it is the last. Its ``forward`` maps one tensor to one; parameters keep
            their
            names and values.
        input_key: Item of a batch that the first stage takes.
        target_key: Item of a batch that the loss takes.
        loss: ``(output of the last stage, target) → scalar``.
    """

    layers: int
    stage: Callable[[nn.Module, range, bool, bool], nn.Module]
    input_key: str
    target_key: str
    loss: Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class TensorSplit:
    """How a model's layers are split over devices.

    Attributes:
        heads: Attention heads that are dealt out: the degree must divide them.
        plan: ``(sequence) → {module name or pattern: style}`` for torch's ``parallelize_module``; with ``sequence``,
        what
            lies between the split matrices is split along the sequence.
        takes_sequence: Whether ``plan`` knows what to do with ``sequence``.
        length: Tokens, which the degree must divide with ``sequence``.
    """

    heads: int
    plan: Callable[[bool], Mapping[str, ParallelStyle]]
    takes_sequence: bool = False
    length: int | None = None


@dataclass(frozen=True)
class Workload:
    """A module and how to feed it.

    Attributes:
        module: On CPU. ``forward(**batch)`` returns the loss: a scalar tensor, or an object or mapping with ``loss``.
        make_batch: ``(batch_size, generator) → batch`` of CPU tensors drawn from ``generator`` alone.
        tokens_per_sample: Length of a sequence; ``None`` where samples have no tokens.
        images: Where the model takes images in the usual form.
        loss: ``(output, batch) → scalar``, where ``forward`` does not return the loss itself.
        forward_keys: Items of a batch that ``forward`` takes; ``None`` for all.
        flops_per_sample: Of a forward pass, where the model's author says so.
        tensor: How to split its layers, where it knows.
        pipeline: How to cut it into stages, where it knows.
    """

    module: nn.Module
    make_batch: Callable[[int, torch.Generator], BatchOfTensors]
    tokens_per_sample: int | None = None
    images: ImageInputs | None = None
    loss: Callable[[object, BatchOfTensors], Tensor] | None = None
    forward_keys: frozenset[str] | None = None
    flops_per_sample: float | None = None
    tensor: TensorSplit | None = None
    pipeline: PipelineSplit | None = None

    def inputs(self, batch: BatchOfTensors) -> BatchOfTensors:
        """What ``forward`` is given of a batch."""
        keys = self.forward_keys
        return batch if keys is None else {name: tensor for name, tensor in batch.items() if name in keys}

    def loss_of(self, output: object, batch: BatchOfTensors) -> Tensor:
        """The scalar loss of a forward pass.

        Raises:
            TypeError: there is none.
        """
        return loss_of(output if self.loss is None else self.loss(output, batch))


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
