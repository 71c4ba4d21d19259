"""Plans for torch's ``parallelize_module`` that split the decoder's layers over tensor-parallel
devices."""

from __future__ import annotations

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
)


def tensor_plan(layers: int) -> dict[str, ParallelStyle]:
    """Tensor parallelism: splits heads, the feed-forward's inner dimension, and the vocabulary of
    embedding and head."""
    plan: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }
    for layer in range(layers):
        plan |= _matrices(layer, RowwiseParallel(), RowwiseParallel())
    return plan


def sequence_plan(layers: int) -> dict[str, ParallelStyle]:
    """Tensor parallelism whose norms and residuals are also split along the sequence."""
    plan: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }
    for layer in range(layers):
        plan |= _matrices(
            layer,
            RowwiseParallel(output_layouts=Shard(1)),
            RowwiseParallel(output_layouts=Shard(1)),
        )
        prefix = f"blocks.{layer}"
        plan[f"{prefix}.attention_norm"] = SequenceParallel()
        plan[f"{prefix}.feed_forward_norm"] = SequenceParallel()
        plan[f"{prefix}.attention"] = PrepareModuleInput(
            input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)
        )
        plan[f"{prefix}.feed_forward"] = PrepareModuleInput(
            input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
        )
    return plan


def _matrices(layer: int, out: ParallelStyle, down: ParallelStyle) -> dict[str, ParallelStyle]:
    prefix = f"blocks.{layer}"
    split = ("attention.query", "attention.key", "attention.value", "feed_forward.up")
    plan: dict[str, ParallelStyle] = {f"{prefix}.{name}": ColwiseParallel() for name in split}
    return {**plan, f"{prefix}.attention.out": out, f"{prefix}.feed_forward.down": down}
