"""DistributedDataParallel: gradients are averaged over ranks in buckets while the backward pass still runs."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torchscale.worker.parallel.interface import Parallel
from torchscale.worker.ranks import Ranks


def wrap(module: nn.Module, ranks: Ranks) -> Parallel:
    """``module``, already on the rank's device, with torch's default buckets of 25 MiB."""
    device_ids = [ranks.device.index] if ranks.device.type == "cuda" else None
    model = DistributedDataParallel(module, device_ids=device_ids)
    return Parallel(model, model.no_sync, gradients_first=True, bucket_bytes=lambda: _bucket_bytes(model))


def _bucket_bytes(model: DistributedDataParallel) -> tuple[int, ...]:
    """What DDP says of its buckets; they are built anew after the first step, in the order of the gradients.

    Empty where this torch does not say: the data comes from a method that is not public.
    """
    logged: dict[str, object] = getattr(model, "_get_ddp_logging_data", dict)()
    sizes = logged.get("rebuilt_bucket_sizes") or logged.get("bucket_sizes") or ""
    parts = [part.strip() for part in str(sizes).split(",")]
    return tuple(int(part) for part in parts if part.isdigit())
