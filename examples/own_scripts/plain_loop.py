"""A training loop of one's own, as people write it: nothing in it knows torchscale.

torchrun --standalone --nproc-per-node 2 examples/own_scripts/plain_loop.py --batch-size 32
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    """Train a small network until the steps are done."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32, help="samples of each rank")
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--steps", type=int, default=100_000)
    options = parser.parse_args()

    on_cuda = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_cuda else "gloo")
    device = torch.device("cpu")
    if on_cuda:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)

    width = options.width
    layers = [layer for _ in range(4) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(width, 10)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
    samples = torch.randn(options.batch_size, width, device=device)
    targets = torch.randint(10, (options.batch_size,), device=device)

    for _ in range(options.steps):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(samples), targets)
        loss.backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
