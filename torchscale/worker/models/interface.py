"""The interface of models. A new family is one new file whose ``build`` returns a
:class:`Workload`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchscale.worker.models.sequence import SequencePart

if TYPE_CHECKING:
    from torch.distributed.tensor.parallel import ParallelStyle

BatchOfTensors = dict[str, Tensor]
"""Keyword arguments of the module's ``forward``; every tensor's first dimension is the batch."""


@dataclass(frozen=True)
class ImageInputs:
    """Names and shape of an image model's inputs, so that real images can replace random ones.

    Attributes:
        pixels: Keyword of the images: float, (batch, 3, ``image_size``, ``image_size``).
        labels: Keyword of the classes: int64, (batch,).
        image_size: Size in pixels.
        num_classes: Labels are 0 to ``num_classes - 1``.
    """

    pixels: str
    labels: str
    image_size: int
    num_classes: int


@dataclass(frozen=True)
class PipelineSplit:
    """How a model is cut into consecutive stages.

    Attributes:
        layers: Number of layers that the stages share.
        stage: ``(module, layers, first, last) → stage``: a module with the given range of layers,
        the embedding if it is the first stage and the head if it is the last. Its ``forward`` maps
        one tensor to one; parameters keep
            their names and values.
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
        heads: Attention heads that are split: the degree must divide their number.
        plan: ``(sequence) → {module name or pattern: style}`` for torch's ``parallelize_module``;
            with ``sequence``, what lies between the split matrices is split along the sequence.
        takes_sequence: Whether ``plan`` supports ``sequence``.
        length: Tokens of a sample; with ``sequence``, the degree must divide their number.
    """

    heads: int
    plan: Callable[[bool], Mapping[str, ParallelStyle]]
    takes_sequence: bool = False
    length: int | None = None


@dataclass(frozen=True)
class ContextSplit:
    """How the sequences of a model are split over devices. Its modules of
    :mod:`torchscale.worker.models.sequence` are told which tokens they get.

    Attributes:
        length: Tokens of a sample: twice the degree must divide their number.
        inputs: Items of a batch along the sequence, (batch, tokens, …).
        targets: The item whose tokens are predicted. ``forward`` then gets the token that follows
            each, and no such token after the last.
        positions: Name under which ``forward`` takes the positions of its tokens, (batch, tokens);
            empty where it does not.
        prepare: Called with the module and its part of the sequence, for a model without such
            modules.
    """

    length: int
    inputs: tuple[str, ...] = ("input_ids",)
    targets: str = "labels"
    positions: str = ""
    prepare: Callable[[nn.Module, SequencePart], None] | None = None


@dataclass(frozen=True)
class Workload:
    """A module and how to feed it.

    Attributes:
        module: The module, on CPU. ``forward(**batch)`` returns the loss: a scalar tensor, or an
            object or mapping with ``loss``.
        make_batch: ``(batch_size, generator) → batch`` of CPU tensors drawn from ``generator``
            alone.
        tokens_per_sample: Length of a sequence; ``None`` where samples have no tokens.
        images: Names and shape of its image inputs; ``None`` for other models.
        loss: ``(output, batch) → scalar``, where ``forward`` does not return the loss itself.
        forward_keys: Items of a batch that ``forward`` takes; ``None`` for all.
        flops_per_sample: FLOPs of a sample's forward pass, where the model defines them.
        tensor: How to split its layers; ``None`` where it cannot be split.
        pipeline: How to cut it into stages; ``None`` where it cannot be cut.
        context: How to split its sequences; ``None`` where they cannot be split.
        experts: Routed experts of each expert layer; ``None`` where it has none that can be spread
            over ranks.
        active_parameters: Parameters that a token is computed with, where some are of experts that
            it does not go to; ``None`` for other models, and where it is not known.
        expected_flops: FLOPs of a sample's forward pass by a formula, for where operators cannot be
            counted; ``None`` without one.
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
    experts: int | None = None
    active_parameters: int | None = None
    expected_flops: float | None = None
    context: ContextSplit | None = None

    def inputs(self, batch: BatchOfTensors) -> BatchOfTensors:
        """The items of ``batch`` that ``forward`` takes."""
        keys = self.forward_keys
        if keys is None:
            return batch
        return {name: tensor for name, tensor in batch.items() if name in keys}

    def loss_of(self, output: object, batch: BatchOfTensors) -> Tensor:
        """The scalar loss of a forward pass.

        Raises:
            TypeError: ``output`` holds no scalar loss.
        """
        if self.loss is None:
            return loss_of(output)
        return loss_of(self.loss(output, batch))


def loss_of(output: object) -> Tensor:
    """The loss in what ``forward`` returned.

    Raises:
        TypeError: ``output`` holds no loss, or it is not a scalar tensor.
    """
    loss = output
    if isinstance(output, dict):
        loss = output.get("loss")
    elif not isinstance(output, Tensor):
        loss = getattr(output, "loss", None)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        raise TypeError(
            "forward(**batch) must return a scalar loss, or an object or mapping with one as "
            "'loss'; "
            f"got {type(output).__name__}"
        )
    return loss
