"""FSDP2: parameters, gradients and optimizer state split over ranks, gathered block by block."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.distributed.tensor import Shard

from torchscale.config.choices import Precision
from torchscale.config.strategies.data_parallel import Sharded
from torchscale.worker.models.experts import expert_layers

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def shard(
    module: nn.Module,
    blocks: Iterable[nn.Module],
    mesh: DeviceMesh,
    options: Sharded,
    precision: Precision,
    *,
    expert_mesh: DeviceMesh | None = None,
) -> None:
    """Shard ``blocks``, then the rest of ``module``, over the last dimension of ``mesh`` (with two
    dimensions, HSDP). Each is moved to the mesh's device as it is sharded, so that the whole model
    never lies there. Experts that are spread over ranks are sharded over ``expert_mesh``, each of
    them along its rows."""
    policy = MixedPrecisionPolicy()
    if casts_parameters(options, precision, module):
        policy = MixedPrecisionPolicy(
            param_dtype=_TYPES[precision], reduce_dtype=_TYPES[options.reduce_dtype]
        )
    offload = OffloadPolicy()
    if options.offload:
        offload = CPUOffloadPolicy(pin_memory=mesh.device_type != "cpu")
    arguments: dict[str, Any] = {
        "reshard_after_forward": options.reshard_after_forward,
        "mp_policy": policy,
        "offload_policy": offload,
    }
    if expert_mesh is not None:
        for layer in expert_layers(module):
            fully_shard(
                layer.experts, mesh=expert_mesh, shard_placement_fn=lambda _: Shard(1), **arguments
            )
    for part in (*blocks, module):
        fully_shard(part, mesh=mesh, **arguments)


def casts_parameters(options: Sharded, precision: Precision, module: nn.Module) -> bool:
    """Whether parameters are gathered in the cell's precision, which then needs no autocast. Batch
    normalization keeps its statistics in fp32 and takes no weights of another type, so models with
    it are autocast."""
    if not options.mixed_precision or precision not in ("bf16", "fp16"):
        return False
    return not any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules())


def set_last_pass(module: nn.Module, last: bool) -> None:
    """Set whether the next backward pass is the last of its step: it reduces gradients, others
    accumulate them."""
    assert isinstance(module, FSDPModule)  # noqa: S101 - narrows for the type checker
    module.set_requires_gradient_sync(last)
