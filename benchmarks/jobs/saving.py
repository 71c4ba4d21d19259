"""A job that saves its state every so many steps: on rank 0, or each rank its own part.

::

    torchrun --standalone --nproc-per-node 2 benchmarks/jobs/saving.py --form torch --rank 0
"""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.state_dict_saver import save
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


def save_checkpoint(folder: Path, state: dict[str, Tensor], step: int) -> None:
    """A file of this rank, and it is on the disk."""
    path = folder / f"state-{dist.get_rank()}.pt"
    with path.open("wb") as file:
        torch.save({"step": step, **state}, file)
        os.fsync(file.fileno())


def save_together(folder: Path, state: dict[str, Tensor], step: int) -> None:
    """A checkpoint of all ranks."""
    writer = FileSystemWriter(folder / "state", overwrite=True)
    save({"step": torch.tensor(step), **state}, storage_writer=writer)


def main() -> None:
    """Train and save."""
    parser = arguments(__doc__)
    parser.add_argument("--form", choices=("torch", "together"), default="torch")
    parser.add_argument("--every", type=int, default=40)
    parser.add_argument("--megabytes", type=int, default=48, help="of the state of a rank")
    parser.add_argument("--folder", type=Path, required=True)
    options = parser.parse_args()
    join()
    seconds = row_seconds(options)
    job = make_job(options.strategy, lambda layers: Network(layers, row_seconds=seconds))
    # As large as a real job's optimizer: that of a network whose steps take 15 ms is small.
    moments = torch.randn(options.megabytes, 1 << 18)
    state = {f"moments-{dist.get_rank()}": moments}
    write = save_together if options.form == "together" else save_checkpoint
    batches = random_batches()
    for step in range(options.steps):
        job.train_step(next(batches))
        if step % options.every == options.every - 1 and is_chosen(options):
            write(options.folder, state, step)
    leave()


if __name__ == "__main__":
    main()
