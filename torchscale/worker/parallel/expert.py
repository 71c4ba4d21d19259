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


def spread(module: nn.Module, mesh: DeviceMesh) -> None:
    """Leave this rank its consecutive part of each layer's experts, in place.

    Args:
        module: A model that holds all experts.
        mesh: The ranks that share them, one dimension.

    Raises:
        ValueError: the model has no experts, or the ranks do not divide their number.
    """
    layers = expert_layers(module)
    if not layers:
        raise ValueError("the model has no experts that can be spread over ranks")
    for layer in layers:
        if layer.router.experts % mesh.size():
            raise ValueError(
                f"{mesh.size()} devices do not divide the {layer.router.experts} experts of a layer"
            )
        place, ranks = mesh.get_local_rank(), mesh.size()
        for name, parameter in list(layer.experts.named_parameters()):
            part = parameter.detach().chunk(ranks)[place].clone()
            shard = DTensor.from_local(part, mesh, [Shard(0)], run_check=False)
            setattr(layer.experts, name, nn.Parameter(shard))
        layer.experts.gradient_share = 1 / ranks
        layer.dispatch = AllToAll(mesh.get_group())


def expert_parameter_names(module: nn.Module) -> list[str]:
    """Names of the parameters of experts in ``module``."""
    return [
        f"{prefix}.{name}"
        for prefix, part in module.named_modules()
        if isinstance(part, Experts)
        for name, _ in part.named_parameters()
    ]


class AllToAll:
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
