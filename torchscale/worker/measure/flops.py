"""Floating-point operations and memory traffic of a model, counted without running it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.hooks import RemovableHandle

from torchscale.schema.launch.rank import FlopCount
from torchscale.worker.models.experts import expert_layers
from torchscale.worker.models.interface import Workload
from torchscale.worker.parallel.blocks import repeated_blocks

_SAMPLES = 2
"""Samples that are counted: batch normalization cannot train on one."""
_BACKWARD_SHARE = 2.0
"""Backward ÷ forward: a matrix product has two gradients, each a product of the same size (Kaplan
et al., 2020)."""
_EXPERTS_BY_TOKEN = "batched_mm"  # noqa: S105 - no password
"""How expert layers of transformers are counted: each token times the weights of the experts that
it goes to. Which these are depends on the data, how many does not. The layers' own products
(``grouped_mm``) are counted by no table of torch's, and run on the meta device in bf16 alone."""


def count_flops(build: Callable[[], Workload]) -> FlopCount:
    """FLOPs and bytes of one sample's passes through the model that ``build`` returns, a
    multiply-add being two FLOPs.

    Counted on the meta device, where attention consists of plain matrix products (torch counts no
    FLOPs for the fused kernels of CPUs). Where the model defines ``flops_per_sample``, that is the
    forward count, the backward count is twice that, and traffic is unknown. Of layers of experts
    those that a token goes to count, and traffic is unknown: whose weights a batch reads depends on
    the data. Where experts cannot be counted (they are with transformers 5), the formula of the
    model's sizes stands in, if it has one.

    Raises:
        UncountableError: what is computed depends on values, which there are none of.
    """
    # Models that look at their inputs' values skip that for fake tensors; plain meta tensors have
    # none to look at.
    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.device("meta"):
            workload = build()
        if workload.flops_per_sample is not None:
            forward = workload.flops_per_sample
            return FlopCount(forward=forward, backward=_BACKWARD_SHARE * forward)
        workload.module.train()
        has_experts = _count_experts_of_each_token(workload.module)
        has_experts = has_experts or bool(expert_layers(workload.module))
        try:
            few, many = (_count(workload, samples) for samples in (_SAMPLES, 2 * _SAMPLES))
        except (DataDependentOutputException, DynamicOutputShapeException) as error:
            if workload.expected_flops is not None:
                forward = workload.expected_flops
                return FlopCount(forward=forward, backward=_BACKWARD_SHARE * forward)
            raise UncountableError(
                "its layers look at values (such as the experts that tokens go to), so what they "
                "compute is not known without data"
            ) from error
        if has_experts:
            return FlopCount(
                forward=few.forward / _SAMPLES,
                backward=few.backward / _SAMPLES,
                blocks_forward=few.blocks / _SAMPLES,
            )
        moved = (many.bytes - few.bytes) / _SAMPLES
        return FlopCount(
            forward=few.forward / _SAMPLES,
            backward=few.backward / _SAMPLES,
            sample_bytes=moved,
            fixed_bytes=max(0.0, few.bytes - moved * _SAMPLES),
            blocks_forward=few.blocks / _SAMPLES,
        )


def count_by_length(build: Callable[[int], Workload], length: int) -> FlopCount:
    """FLOPs of a sample of ``length`` tokens, with the share of them that grows with the square of
    the length: a sample of half as many tokens takes half of the others, and a quarter of these.

    Args:
        build: The model for samples of so many tokens.
        length: At least 2.

    Raises:
        UncountableError: as :func:`count_flops`.
    """
    shorter = length // 2
    whole, part = (count_flops(partial(build, tokens)) for tokens in (length, shorter))
    total, of_part = whole.forward + whole.backward, part.forward + part.backward
    # a·n + b·n² for n tokens, from its values at two lengths.
    squared = (total / length - of_part / shorter) / (length - shorter)
    share = min(1.0, max(0.0, squared * length**2 / total))
    return whole.model_copy(update={"attention_share": share})


class UncountableError(Exception):
    """Why the operations of a model cannot be counted."""


def _count_experts_of_each_token(module: nn.Module) -> bool:
    """Whether the model has expert layers of transformers, which from now on compute by single
    tokens."""
    able = getattr(module, "_can_set_experts_implementation", None)  # transformers 5
    if able is None or not able():
        return False
    module.set_experts_implementation(_EXPERTS_BY_TOKEN)  # type: ignore[operator]
    return True


@dataclass(frozen=True)
class _Count:
    """FLOPs and bytes of one batch."""

    forward: float
    backward: float
    bytes: float
    blocks: float


def _count(workload: Workload, samples: int) -> _Count:
    batch = workload.make_batch(samples, torch.Generator().manual_seed(0))
    batch = {name: tensor.to("meta") for name, tensor in batch.items()}
    forward, backward_counter, moved = (
        FlopCounterMode(display=False),
        FlopCounterMode(display=False),
        TrafficCounter(),
    )
    with moved:
        with forward, _BlockCounter(repeated_blocks(workload.module), forward) as blocks:
            loss = workload.loss_of(workload.module(**workload.inputs(batch)), batch)
        with backward_counter:
            loss.backward()  # type: ignore[no-untyped-call]
    workload.module.zero_grad(set_to_none=True)
    flops = float(forward.get_total_flops()), float(backward_counter.get_total_flops())
    return _Count(*flops, float(moved.total), blocks.total)


class _BlockCounter:
    """FLOPs of the repeated blocks' forward passes."""

    def __init__(self, blocks: Sequence[nn.Module], counter: FlopCounterMode) -> None:
        self._blocks, self._counter = blocks, counter
        self._handles: list[RemovableHandle] = []
        self._began = 0.0
        self.total = 0.0

    def __enter__(self) -> _BlockCounter:
        for block in self._blocks:
            self._handles += [
                block.register_forward_pre_hook(self._begin),
                block.register_forward_hook(self._end),
            ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _begin(self, *_: object) -> None:
        self._began = float(self._counter.get_total_flops())

    def _end(self, *_: object) -> None:
        self.total += float(self._counter.get_total_flops()) - self._began


class TrafficCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes that all operators read and write, as if nothing were cached; views count as zero."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the operator gives
        result = func(*args, **(kwargs or {}))
        if not func.is_view and not str(func).startswith(("aten.empty", "aten.detach")):
            read = {
                id(leaf): leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)
            }
            written = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
            self.total += sum(
                tensor.numel() * tensor.element_size() for tensor in (*read.values(), *written)
            )
        return result
