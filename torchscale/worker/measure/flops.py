"""Floating-point operations of a model, counted without running it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from torchscale.worker.models.interface import Workload

_SAMPLES = 2
"""Batch normalisation cannot train on one."""


def forward_flops(build: Callable[[], Workload]) -> float:
    """FLOPs of one sample's forward pass, a multiply-add being two: what ``build`` builds, on the meta device, where
    attention is counted as the products it consists of (kernels of a real CPU count as nothing)."""
    # Models that look at their inputs' values skip that for fake tensors; plain meta tensors have none to look at.
    with FakeTensorMode(allow_non_fake_inputs=True):
        with torch.device("meta"):
            workload = build()
        if workload.flops_per_sample is not None:
            return workload.flops_per_sample
        batch = workload.make_batch(_SAMPLES, torch.Generator().manual_seed(0))
        batch = {name: tensor.to("meta") for name, tensor in batch.items()}
        with FlopCounterMode(display=False) as counter:
            workload.loss_of(workload.module.train()(**workload.inputs(batch)), batch)
        return float(counter.get_total_flops()) / _SAMPLES
