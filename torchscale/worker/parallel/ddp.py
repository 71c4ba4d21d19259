"""DistributedDataParallel: gradients are averaged over ranks in buckets while the backward pass still runs."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel

from torchscale.config.strategy import CommHook, Ddp
from torchscale.worker.parallel.interface import Parallel
from torchscale.worker.process_group import Ranks


def wrap(module: nn.Module, options: Ddp, ranks: Ranks) -> Parallel:
    """``module``, which is already on the rank's device, replicated over all ranks by DDP."""
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
    """``module`` replicated over one dimension of a mesh. DDP gets the mesh and not its process group, since the
    module's parameters may be DTensors."""
    return DistributedDataParallel(module, device_mesh=mesh)


def _register_hook(model: DistributedDataParallel, hook: CommHook) -> None:
    if hook == "fp16":
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "bf16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif hook == "powersgd":
        # Rank 1 compresses most. PowerSGD may start only once DDP has rebuilt its buckets; ten steps are well beyond.
        state = powerSGD_hook.PowerSGDState(process_group=None, matrix_approximation_rank=1, start_powerSGD_iter=10)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif hook == "noop":
        # DDP refuses a hook whose annotations are text, as all are here; a lambda has none.
        model.register_comm_hook(None, lambda _, bucket: _completed(bucket.buffer()))


def _completed(buffer: Tensor) -> torch.futures.Future[Tensor]:
    """A bucket as it is on this rank, at once."""
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(buffer)
    return future


def _bucket_bytes(model: DistributedDataParallel) -> tuple[int, ...]:
    """Sizes of DDP's buckets in bytes; they are rebuilt after the first step, in the order of the gradients.

    Empty where this torch does not report them: the method is not public.
    """
    logged: dict[str, object] = getattr(model, "_get_ddp_logging_data", dict)()
    sizes = logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or ""
    parts = [part.strip() for part in str(sizes).split(",")]
    return tuple(int(part) for part in parts if part.isdigit())
