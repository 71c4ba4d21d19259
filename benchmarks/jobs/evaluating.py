"""A job that evaluates every so many steps: a copy of the model on one rank, or all on their part.

::

    torchrun --standalone --nproc-per-node 2 benchmarks/jobs/evaluating.py --rank 0 --every 50
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn
from training import (
    Network,
    arguments,
    is_chosen,
    join,
    leave,
    make_job,
    random_batches,
    row_seconds,
    squared_error,
)


def evaluate(model: nn.Module, batches: Iterator[Tensor], count: int) -> Tensor:
    """The mean loss of some batches."""
    model.eval()
    total = torch.zeros(1)
    with torch.no_grad():
        for _ in range(count):
            batch = next(batches)
            total += squared_error(model(batch), batch)
    model.train()
    return total / count


def main() -> None:
    """Train and evaluate."""
    parser = arguments(__doc__)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--batches", type=int, default=20)
    options = parser.parse_args()
    join()
    seconds = row_seconds(options)
    job = make_job(options.strategy, lambda layers: Network(layers, row_seconds=seconds))
    # All evaluate the model itself. A rank by itself cannot where others hold parts of it.
    averaged = Network(row_seconds=seconds)
    evaluated = job.model if options.rank == -1 else averaged
    batches = random_batches()
    for step in range(options.steps):
        job.train_step(next(batches))
        if step % options.every != options.every - 1 or not is_chosen(options):
            continue
        loss = evaluate(evaluated, batches, options.batches)
        if options.rank == -1:
            dist.all_reduce(loss)
    leave()


if __name__ == "__main__":
    main()
