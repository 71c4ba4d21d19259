"""The optimizer of a cell, and gradient clipping over parameters that may be sharded over ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torchscale.schema.cells.training import TrainingCell
from torchscale.worker.dtensors import Split, as_dtensor, local_part, split_of
from torchscale.worker.parallel.interface import Parallel

_KINDS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def make_optimizer(cell: TrainingCell, parallel: Parallel) -> torch.optim.Optimizer:
    """The cell's optimizer over the parameters that this rank holds (SGD with a momentum of
    0.9)."""
    options: dict[str, Any] = {"lr": cell.learning_rate}
    if cell.optimizer == "sgd":
        options["momentum"] = 0.9
    if cell.fused:
        options["fused"] = True
    kind = _KINDS[cell.optimizer]
    if parallel.make_optimizer is not None:
        return parallel.make_optimizer(kind, options)
    return kind([{"params": members} for members in _by_mesh(parallel.module)], **options)


def clip_gradients(
    parameters: Iterable[nn.Parameter], limit: float, groups: Iterable[dist.ProcessGroup]
) -> None:
    """Scale all gradients so that their norm over the whole model is at most ``limit``.

    torch cannot combine parameters of different meshes, so the squared norm of each mesh's is added
    up; it is also summed over ``groups``, whose ranks hold other parameters of the model.

    Args:
        parameters: Those of the module as it was before its first forward pass:
            DistributedDataParallel takes the split ones out of the module then.
        limit: The most that the norm may be.
        groups: Groups of ranks with other parameters.
    """
    gradients: dict[object, list[Tensor]] = {}
    splits: dict[object, Split] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            split = split_of(parameter)
            kind = None if split is None else (split.is_local, split.mesh, split.placements)
            gradients.setdefault(kind, []).append(parameter.grad)
            if split is not None:
                splits[kind] = split
    squared = _squared_norm([(members, splits.get(kind)) for kind, members in gradients.items()])
    for group in groups:
        dist.all_reduce(squared, group=group)
    # 1e-6 as in torch.nn.utils.clip_grads_with_norm_: no division by zero
    scale = torch.clamp(limit / (squared.sqrt() + 1e-6), max=1.0)
    for members in gradients.values():
        for gradient in members:
            local = local_part(gradient)
            local.mul_(scale.to(local.device))


def _by_mesh(module: nn.Module) -> list[list[nn.Parameter]]:
    """Plain parameters, and DTensors by mesh: a fused update takes tensors of one mesh only."""
    kinds: dict[object, list[nn.Parameter]] = {}
    for parameter in module.parameters():
        split = as_dtensor(parameter)
        kinds.setdefault(None if split is None else split.device_mesh, []).append(parameter)
    return list(kinds.values())


def _squared_norm(kinds: Sequence[tuple[Sequence[Tensor], Split | None]]) -> Tensor:
    total: Tensor | None = None
    for members, how in kinds:
        norm = torch.nn.utils.get_total_norm(members)
        split = as_dtensor(norm)
        whole = norm if split is None else split.full_tensor()
        squared = whole.detach().float() ** 2
        if how is not None and how.is_local:
            squared = _sum_over_parts(squared, how)
        total = squared if total is None else total + squared.to(total.device)
    if total is None:
        return torch.zeros(())
    return total


def _sum_over_parts(squared: Tensor, how: Split) -> Tensor:
    """The sum over the ranks that hold other parts."""
    for dimension, placement in enumerate(how.placements):
        if placement.is_shard():
            dist.all_reduce(squared, group=how.mesh.get_group(dimension))
    return squared
