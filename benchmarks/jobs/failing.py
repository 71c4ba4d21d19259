"""A job that fails, in one of several ways.

::

    torchrun --standalone --nproc-per-node 2 benchmarks/jobs/failing.py --fault raise --rank 1
"""

from __future__ import annotations

import importlib
import os
import resource
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from training import (
    ROWS,
    WIDTH,
    Network,
    arguments,
    is_chosen,
    join,
    leave,
    make_job,
    row_seconds,
)

FAULTS = ("raise", "exit", "kill", "mismatch", "worker", "memory", "import", "absent", "settings")
JOIN_SECONDS = 20.0
"""How long ranks wait for one that never joins."""
CALL_SECONDS = 10.0
"""How long they wait in a collective."""


class Samples(Dataset[Tensor]):
    """Rows, of which one kills the process that reads it.

    Args:
        last: The row; -1 for none.
    """

    def __init__(self, last: int) -> None:
        self.last = last

    def __len__(self) -> int:
        return 1 << 20

    def __getitem__(self, index: int) -> Tensor:
        if index == self.last:
            os.kill(os.getpid(), signal.SIGKILL)
        return torch.ones(WIDTH)


def check_loss(step: int) -> None:
    """Raise, as if it were not finite."""
    raise ValueError(f"the loss is not finite in step {step}")


def save_and_report() -> None:
    """A collective that the others do not call."""
    dist.all_reduce(torch.zeros(1))


def cache_activations() -> None:
    """More than this process may have."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    torch.ones(1 << 30)


def fail(fault: str, step: int) -> None:
    """Fail as asked for; a worker fails by itself."""
    if fault == "raise":
        check_loss(step)
    if fault == "exit":
        sys.exit(3)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "mismatch":
        save_and_report()
    if fault == "memory":
        cache_activations()


def before_it_joins(fault: str) -> None:
    """Fail before there are ranks."""
    if fault == "import":
        importlib.import_module("a_module_that_is_not_installed")
    if fault == "settings":
        raise KeyError("learning_rate")
    if fault == "absent":
        time.sleep(2 * JOIN_SECONDS)
        sys.exit(0)


def main() -> None:
    """Train, and fail."""
    parser = arguments(__doc__)
    parser.add_argument("--fault", choices=FAULTS, default="raise")
    parser.add_argument("--at", type=int, default=40, help="step of the fault")
    options = parser.parse_args()
    if options.rank in (-1, int(os.environ["RANK"])):
        before_it_joins(options.fault)
    join(JOIN_SECONDS if options.fault == "absent" else CALL_SECONDS)
    seconds = row_seconds(options)
    job = make_job(options.strategy, lambda layers: Network(layers, row_seconds=seconds))
    dies = options.fault == "worker" and is_chosen(options)
    samples = Samples(options.at * ROWS if dies else -1)
    loader = DataLoader(samples, batch_size=ROWS, num_workers=int(options.fault == "worker"))
    for step, batch in zip(range(options.steps), loader, strict=False):
        if step == options.at and is_chosen(options):
            fail(options.fault, step)
        job.train_step(batch)
    leave()


if __name__ == "__main__":
    main()
