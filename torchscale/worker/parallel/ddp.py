"""DistributedDataParallel: gradients are averaged over ranks in buckets while the backward pass still runs."""

from __future__ import annotations

from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from torchscale.schema.strategy import CommHook, Ddp
from torchscale.worker.parallel.interface import Parallel
from torchscale.worker.ranks import Ranks


def wrap(module: nn.Module, options: Ddp, ranks: Ranks) -> Parallel:
    """``module``, already on the rank's device, over all ranks."""
    device_ids = None if ranks.device.type == "cpu" else [ranks.device.index]
    model = DistributedDataParallel(
        module,
        device_ids=device_ids,
        bucket_cap_mb=options.bucket_cap_mb,
        static_graph=options.static_graph,
        gradient_as_bucket_view=options.gradient_as_bucket_view,
    )
    _register_hook(model, options.comm_hook)
    return Parallel(
        module,
        model,
        no_sync=model.no_sync,
        quiet=True,
        gradients_first=True,
        bucket_bytes=lambda: _bucket_bytes(model),
    )


def replicate(module: nn.Module, mesh: DeviceMesh) -> DistributedDataParallel:
    """``module`` over one dimension of a mesh. The mesh, not its process group, is what DDP needs to know of modules
    whose parameters are split."""
    return DistributedDataParallel(module, device_mesh=mesh)


def _register_hook(model: DistributedDataParallel, hook: CommHook) -> None:
    if hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "bf16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif hook == "powersgd":
        state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=10)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)


def _bucket_bytes(model: DistributedDataParallel) -> tuple[int, ...]:
    """What DDP says of its buckets; they are built anew after the first step, in the order of the gradients.

    Empty where this torch does not say: the data comes from a method that is not public.
    """
    logged: dict[str, object] = getattr(model, "_get_ddp_logging_data", dict)()
    sizes = logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or ""
    parts = [part.strip() for part in str(sizes).split(",")]
    return tuple(int(part) for part in parts if part.isdigit())
