"""DistributedDataParallel: gradients are averaged over ranks in buckets while the backward pass still runs."""

from __future__ import annotations

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from torchscale.worker.ranks import Ranks


def wrap(module: nn.Module, ranks: Ranks) -> nn.Module:
    """``module``, already on the rank's device, with torch's default buckets of 25 MiB."""
    device_ids = [ranks.device.index] if ranks.device.type == "cuda" else None
    return DistributedDataParallel(module, device_ids=device_ids)
