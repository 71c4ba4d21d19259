"""Plan for torch's ``parallelize_module`` that splits a decoder with experts over tensor-parallel
devices. Routed experts are no layers of torch's: :mod:`torchscale.worker.parallel.expert` splits
them."""

from __future__ import annotations

from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel

_COLUMNS = ("attention.query", "attention.key", "attention.value")
_GATED = ("feed_forward", "feed_forward.shared")
"""Dense layers, and the shared experts of others."""


def tensor_plan(layers: int) -> dict[str, ParallelStyle]:
    """Heads, the inner width of dense layers and shared experts, and the vocabulary of embedding and
    head."""
    plan: dict[str, ParallelStyle] = {
        "embedding": RowwiseParallel(input_layouts=Replicate()),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }
    for layer in range(layers):
        prefix = f"blocks.{layer}"
        plan |= {f"{prefix}.{name}": ColwiseParallel() for name in _COLUMNS}
        plan[f"{prefix}.attention.out"] = RowwiseParallel()
        for part in _GATED:
            plan[f"{prefix}.{part}.gate"] = ColwiseParallel()
            plan[f"{prefix}.{part}.up"] = ColwiseParallel()
            plan[f"{prefix}.{part}.down"] = RowwiseParallel()
    return plan
