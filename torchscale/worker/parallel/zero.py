"""ZeRO stage 1: DDP whose optimizer state is split over the ranks."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from torchscale.config.strategies.data_parallel import Ddp
from torchscale.worker.parallel import ddp
from torchscale.worker.parallel.interface import Parallel
from torchscale.worker.process_group import Ranks


def wrap(module: nn.Module, ranks: Ranks) -> Parallel:
    """``module``, which is already on the rank's device, under DDP with a ZeRO optimizer. Ranks
    broadcast updated parameters within the optimizer step, so that no phase is compute only where
    these waits cannot be timed."""

    def make(
        kind: type[torch.optim.Optimizer], options: dict[str, object]
    ) -> torch.optim.Optimizer:
        return ZeroRedundancyOptimizer(module.parameters(), optimizer_class=kind, **options)  # type: ignore[arg-type]

    return replace(
        ddp.wrap(module, Ddp(), ranks),
        waits_in_python=True,
        updates_together=True,
        bucket_bytes=None,
        make_optimizer=make,
    )
