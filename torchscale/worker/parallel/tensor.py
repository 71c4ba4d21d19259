"""Tensor and sequence parallelism: the matrices of every layer split over ranks that see the same
samples."""

from __future__ import annotations

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import parallelize_module

from torchscale.worker.models.interface import TensorSplit


def split(module: nn.Module, how: TensorSplit, mesh: DeviceMesh, *, sequence: bool) -> None:
    """Split ``module`` in place; a stage of a pipeline lacks some of the modules that the plan
    names.

    Raises:
        ValueError: the number of ranks does not divide the heads (or, with ``sequence``, the
        tokens), or the model's plan does not support sequences.
    """
    degree = mesh.size()
    if how.heads % degree:
        raise ValueError(
            f"tensor parallelism over {degree} devices does not divide the model's {how.heads} "
            "heads"
        )
    if sequence and not how.takes_sequence:
        raise ValueError("this model's plan for tensor parallelism does not split sequences")
    if sequence and how.length is not None and how.length % degree:
        raise ValueError(
            f"sequence parallelism over {degree} devices does not divide {how.length} tokens"
        )
    present = {name for name, _ in module.named_modules()}
    plan = {
        name: style for name, style in how.plan(sequence).items() if "*" in name or name in present
    }
    parallelize_module(module, mesh, plan)
