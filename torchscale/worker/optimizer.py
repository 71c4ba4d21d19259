"""The optimizer of a cell, and clipping over parameters that may lie in parts on many ranks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torchscale.schema.cell import Cell
from torchscale.worker.dtensors import as_dtensor, local_part
from torchscale.worker.parallel.interface import Parallel

_KINDS: dict[str, type[torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}


def make_optimizer(cell: Cell, parallel: Parallel) -> torch.optim.Optimizer:
    """Over the parameters that this rank holds."""
    options: dict[str, Any] = {"lr": cell.learning_rate}
    if cell.optimizer == "sgd":
        options["momentum"] = 0.9
    if cell.fused:
        options["fused"] = True
    kind = _KINDS[cell.optimizer]
    if parallel.make_optimizer is not None:
        return parallel.make_optimizer(kind, options)
    return kind([{"params": members} for members in _by_mesh(parallel.module)], **options)


def clip_gradients(module: nn.Module, limit: float, groups: Iterable[dist.ProcessGroup]) -> None:
    """Scale all gradients so that their norm over the whole model is at most ``limit``.

    Parameters of different meshes cannot be treated together, so the norm is put together from each kind's; ``groups``
    hold other parameters of the model.
    """
    gradients: dict[object, list[Tensor]] = {}
    for parameter in module.parameters():
        if parameter.grad is not None:
            split = as_dtensor(parameter.grad)
            kind = None if split is None else (split.device_mesh, split.placements)
            gradients.setdefault(kind, []).append(parameter.grad)
    squared = _squared_norm(list(gradients.values()))
    for group in groups:
        dist.all_reduce(squared, group=group)
    scale = torch.clamp(limit / (squared.sqrt() + 1e-6), max=1.0)
    for members in gradients.values():
        for gradient in members:
            local = local_part(gradient)
            local.mul_(scale.to(local.device))


def _by_mesh(module: nn.Module) -> list[list[nn.Parameter]]:
    """Whole parameters, and split ones by the mesh that they lie on: fused updates take one kind at a time."""
    kinds: dict[object, list[nn.Parameter]] = {}
    for parameter in module.parameters():
        split = as_dtensor(parameter)
        kinds.setdefault(None if split is None else split.device_mesh, []).append(parameter)
    return list(kinds.values())


def _squared_norm(kinds: Sequence[Sequence[Tensor]]) -> Tensor:
    total: Tensor | None = None
    for members in kinds:
        norm = torch.nn.utils.get_total_norm(members)
        split = as_dtensor(norm)
        whole = norm if split is None else split.full_tensor()
        squared = whole.detach().float() ** 2
        total = squared if total is None else total + squared.to(total.device)
    return torch.zeros(()) if total is None else total
