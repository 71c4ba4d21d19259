"""Expert parallelism: the experts of every layer spread over ranks, which send each other the
tokens. Each rank has its own samples, and all other parameters.

Shapes: M tokens at experts (each once for every expert that it goes to), D hidden size, E experts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard

from torchscale.worker.dtensors import local_part
from torchscale.worker.models.experts import ExpertLayer, Experts, expert_layers

EXPERT, TENSOR = "expert", "tensor"
"""Dimensions of a mesh along which experts are shared out."""
_INNER = {"gate": 2, "up": 2, "down": 1}
"""The dimension of an expert's matrices that is its inner width."""


def spread(module: nn.Module, mesh: DeviceMesh) -> None:
    """Leave this rank its part of each layer's experts, in place: of ranks along ``expert`` each
    has a consecutive part of them, of those along ``tensor`` each a part of every one's inner width.

    Args:
        module: A model, or a stage of one, that holds all experts of its layers.
        mesh: The ranks that share them: one of these dimensions, or both in this order.

    Raises:
        ValueError: the ranks do not divide the number of experts, or their inner width.
    """
    names = mesh.mesh_dim_names or ()
    for layer in expert_layers(module):
        for name, parameter in list(layer.experts.named_parameters()):
            part, placements = parameter.detach(), []
            for dimension in names:
                along = 0 if dimension == EXPERT else _INNER[name]
                part = _part(part, along, mesh[dimension])
                placements.append(Shard(along))
            shard = DTensor.from_local(part.clone(), mesh, placements, run_check=False)
            setattr(layer.experts, name, nn.Parameter(shard))
        if EXPERT in names:
            layer.experts.gradient_share = 1 / mesh[EXPERT].size()
            layer.dispatch = TokenExchange(mesh[EXPERT].get_group())
        if TENSOR in names:
            layer.sums = SumOverParts(mesh[TENSOR].get_group())


def _part(whole: Tensor, along: int, mesh: DeviceMesh) -> Tensor:
    """This rank's equal part along a dimension."""
    ranks, size = mesh.size(), whole.shape[along]
    if size % ranks:
        what = "experts of a layer" if along == 0 else "dimensions of an expert's inner width"
        raise ValueError(f"{ranks} devices do not divide the {size} {what}")
    return whole.chunk(ranks, dim=along)[mesh.get_local_rank()]


def expert_parameter_names(module: nn.Module) -> list[str]:
    """Names of the parameters of experts in ``module``."""
    return [
        f"{prefix}.{name}"
        for prefix, part in module.named_modules()
        if isinstance(part, Experts)
        for name, _ in part.named_parameters()
    ]


class SumOverParts:
    """Experts whose inner width is split over ranks that see the same tokens: each rank's output is
    a part of a sum, and so is its gradient of what comes in."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group = group

    def enter(self, x: Tensor) -> Tensor:
        """``x``, which all ranks have; its gradient is the sum over them."""
        return cast(Tensor, _Enter.apply(x, self._group))  # type: ignore[no-untyped-call]

    def leave(self, x: Tensor) -> Tensor:
        """The sum of ``x`` over the ranks; each gets its whole gradient."""
        return cast(Tensor, _Leave.apply(x, self._group))  # type: ignore[no-untyped-call]


class _Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:  # noqa: ANN401 - torch's own interface
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401 - torch's own interface
        return _summed(gradients[0], ctx.group), None


class _Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:  # noqa: ANN401 - torch's own interface
        del ctx
        return _summed(x, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:  # noqa: ANN401 - torch's own interface
        del ctx
        return gradients[0], None


def _summed(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    total = x.contiguous().clone()
    dist.all_reduce(total, group=group)
    return total


class TokenExchange:
    """Sends each token to the ranks that hold its experts, and their output back."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group, self._ranks = group, dist.get_world_size(group)

    def __call__(self, x_MD: Tensor, counts_E: Tensor, experts: Experts) -> tuple[Tensor, int]:
        """As :class:`~torchscale.worker.models.experts.Dispatch` says."""
        arriving_E = torch.empty_like(counts_E)  # from each rank, for each expert of this one
        dist.all_to_all_single(arriving_E, counts_E, group=self._group)
        # Sizes of the transfers are needed on the host: the one wait for the device in a layer.
        sent, received = torch.stack((counts_E, arriving_E)).tolist()
        to_ranks, from_ranks = self._by_rank(sent), self._by_rank(received)
        rows = exchange(x_MD, to_ranks, from_ranks, self._group)
        # They lie by rank and within it by expert; experts take theirs together.
        own = counts_E.numel() // self._ranks
        numbers = torch.arange(own, device=x_MD.device).repeat(self._ranks)
        order = numbers.repeat_interleave(arriving_E, output_size=len(rows)).argsort(stable=True)
        own_counts = arriving_E.view(self._ranks, own).sum(dim=0)
        host_counts = [sum(received[number::own]) for number in range(own)]
        out = experts(rows.index_select(0, order), own_counts, host_counts)
        out = out.index_select(0, order.argsort())
        return exchange(out, from_ranks, to_ranks, self._group), len(rows)

    def _by_rank(self, counts: Sequence[int]) -> list[int]:
        own = len(counts) // self._ranks
        return [sum(counts[rank * own : (rank + 1) * own]) for rank in range(self._ranks)]


def exchange(
    rows: Tensor, sends: Sequence[int], receives: Sequence[int], group: dist.ProcessGroup
) -> Tensor:
    """Send the first ``sends[0]`` rows to the group's first rank, and so on; the rows that come,
    in the order of ranks. Gradients go the other way."""
    return cast(Tensor, _Exchange.apply(rows, sends, receives, group))  # type: ignore[no-untyped-call]


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's own interface
        rows: Tensor,
        sends: Sequence[int],
        receives: Sequence[int],
        group: dist.ProcessGroup,
    ) -> Tensor:
        ctx.sends, ctx.receives, ctx.group = sends, receives, group
        return _sent(rows, sends, receives, group)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401 - torch's own interface
        return _sent(gradients[0], ctx.receives, ctx.sends, ctx.group), None, None, None


def _sent(
    rows: Tensor, sends: Sequence[int], receives: Sequence[int], group: dist.ProcessGroup
) -> Tensor:
    arriving = rows.new_empty((sum(receives), *rows.shape[1:]))
    dist.all_to_all_single(arriving, rows.contiguous(), list(receives), list(sends), group=group)
    return arriving


class CopiedExperts:
    """Averages the gradients of experts over the ranks that hold copies of them, while the backward
    pass still runs: what DistributedDataParallel does for all other parameters."""

    def __init__(self, layers: Sequence[ExpertLayer], group: dist.ProcessGroup) -> None:
        self._group, self._ranks = group, dist.get_world_size(group)
        self._pending: list[tuple[dist.Work, Tensor]] = []
        self._is_last_pass = True
        for layer in layers:
            for parameter in layer.experts.parameters():
                parameter.register_post_accumulate_grad_hook(self._reduce)  # type: ignore[no-untyped-call]

    def set_last_pass(self, last: bool) -> None:
        """Whether the next backward pass is the last of its step; others only accumulate."""
        self._is_last_pass = last

    def finish(self) -> None:
        """Wait until all gradients are averaged."""
        for work, gradient in self._pending:
            work.wait()
            gradient.div_(self._ranks)
        self._pending = []

    def _reduce(self, parameter: Tensor) -> None:
        if not self._is_last_pass or parameter.grad is None:
            return
        gradient = local_part(parameter.grad)
        work = dist.all_reduce(gradient, group=self._group, async_op=True)
        if work is not None:
            self._pending.append((work, gradient))
