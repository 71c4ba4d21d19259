"""A user's own training script: DDP, a loader, and the one line of torchscale."""

from __future__ import annotations

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import torchscale


def main() -> None:
    """Train; ``sys.argv[1]`` seconds more on rank 1, ``sys.argv[2]`` steps."""
    extra, steps = float(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    data = torch.randn(8, 256)
    print("training begins", flush=True)
    with torchscale.step_profiler() as p:
        for _ in range(steps):
            time.sleep(0.01 + (extra if dist.get_rank() == 1 else 0.0))
            model(data).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            p.step()
    print("training is over", flush=True)
    dist.barrier()
    os._exit(0)


if __name__ == "__main__":
    main()
