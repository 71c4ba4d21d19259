"""A job that reads its data from shards: samples that one rank decodes slowly, shards that are slow
to open, or a sample that takes seconds.

::

    torchrun --standalone --nproc-per-node 2 benchmarks/jobs/loading.py --slow sample --rank 1
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from training import (
    ROWS,
    WIDTH,
    Job,
    Network,
    arguments,
    is_chosen,
    join,
    leave,
    make_job,
    row_seconds,
)


class Shards(Dataset[Tensor]):
    """Rows of shards.

    Args:
        slow: ``decoding`` each sample, ``shard`` to open, or a single ``sample``; empty for none.
        seconds: Of a batch's samples together, of a shard, or of the sample.
        every: Batches in a shard, or before the sample.
    """

    def __init__(self, slow: str, seconds: float, every: int) -> None:
        self.slow, self.seconds, self.every = slow, seconds, every
        self.rows = torch.randn(4096, WIDTH)

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        batch, place = divmod(index, ROWS)
        if place == 0 and batch % self.every == self.every - 1:
            self.open_shard(batch // self.every)
        return self.decode(index)

    def open_shard(self, number: int) -> None:
        """Slow, if shards are."""
        if self.slow == "shard":
            time.sleep(self.seconds)
        if self.slow == "sample" and number == 0:
            time.sleep(self.seconds)

    def decode(self, index: int) -> Tensor:
        """A row; slow, if decoding is."""
        if self.slow == "decoding":
            time.sleep(self.seconds / ROWS)
        return self.rows[index % len(self.rows)]


def train(job: Job, loader: DataLoader[Tensor], steps: int) -> None:
    """Read and train."""
    for step, batch in enumerate(loader):
        if step == steps:
            break
        job.train_step(batch)


def loader_of(options: argparse.Namespace) -> DataLoader[Tensor]:
    """The loader of this rank."""
    slow = options.slow if is_chosen(options) else ""
    shards = Shards(slow, options.seconds, options.every)
    # One thread of torch in a worker too: its collate would start as many as there are cores.
    return DataLoader(shards, batch_size=ROWS, num_workers=options.workers)


def main() -> None:
    """Train."""
    parser = arguments(__doc__)
    parser.add_argument("--slow", choices=("", "decoding", "shard", "sample"), default="decoding")
    parser.add_argument("--seconds", type=float, default=0.006)
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--workers", type=int, default=0)
    options = parser.parse_args()
    join()
    seconds = row_seconds(options)
    job = make_job(options.strategy, lambda layers: Network(layers, row_seconds=seconds))
    train(job, loader_of(options), options.steps)
    leave()


if __name__ == "__main__":
    main()
