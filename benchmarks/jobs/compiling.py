"""A job that compiles a function of its forward pass, whose lengths or settings change.

::

    torchrun --standalone --nproc-per-node 2 benchmarks/jobs/compiling.py --changes lengths
"""

from __future__ import annotations

import random

import torch
import torch._dynamo
import torch.distributed as dist
from torch import Tensor
from training import (
    Network,
    arguments,
    is_chosen,
    join,
    leave,
    make_job,
    random_batches,
    row_seconds,
)

torch._dynamo.config.recompile_limit = 1000
torch._dynamo.config.accumulated_recompile_limit = 1000


def mix(x: Tensor, tokens: Tensor, temperature: float) -> Tensor:
    """Rows with the mean of as many tokens as there are."""
    weights = torch.softmax(tokens @ x[0] / temperature, 0)
    for _ in range(4):
        weights = torch.softmax(tokens @ (weights @ tokens) / temperature, 0)
    return x + 0.01 * (weights @ tokens)


class Mixed(Network):
    """Square layers behind a compiled function."""

    tokens = torch.ones(1, 1)
    temperature = 1.0
    backend = "eager"

    def forward(self, x: Tensor) -> Tensor:
        """The last layer's output."""
        return super().forward(self.mixed(x, Mixed.tokens, Mixed.temperature))

    def __init__(self, layers: int, row_seconds: float) -> None:
        super().__init__(layers, row_seconds=row_seconds)
        self.mixed = torch.compile(mix, backend=Mixed.backend, dynamic=False)


def main() -> None:
    """Train."""
    parser = arguments(__doc__)
    parser.add_argument("--changes", choices=("lengths", "settings"), default="lengths")
    parser.add_argument("--every", type=int, default=15)
    parser.add_argument("--backend", choices=("eager", "aot_eager"), default="eager")
    options = parser.parse_args()
    join()
    Mixed.backend = options.backend
    seconds = row_seconds(options)
    job = make_job(options.strategy, lambda layers: Mixed(layers, row_seconds=seconds))
    batches = random_batches()
    lengths = random.Random(dist.get_rank()).sample(range(32, 256), 200)
    for step in range(options.steps):
        change = step // options.every if is_chosen(options) else 0
        batch = next(batches)
        length = lengths[change] if options.changes == "lengths" else 64
        Mixed.tokens = torch.ones(length, batch.shape[1])
        Mixed.temperature = 1.0 + (change if options.changes == "settings" else 0)
        job.train_step(batch)
    leave()


if __name__ == "__main__":
    main()
