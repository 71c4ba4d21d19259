"""A job whose Python does more than train: garbage, log lines, and tensors that are never freed.

::

    torchrun --standalone --nproc-per-node 2 benchmarks/jobs/keeping.py --does collect --rank 1
"""

from __future__ import annotations

import gc
import json
import os
from collections import deque
from pathlib import Path
from typing import Any, TextIO

import torch
import torch.distributed as dist
from torch import Tensor
from training import (
    WIDTH,
    Network,
    arguments,
    is_chosen,
    join,
    leave,
    make_job,
    random_batches,
    row_seconds,
)

PLACES = ("none", "collect", "churn", "log", "remember")


class Corpus:
    """Tokenized texts in memory, some of which are replaced in every step.

    Args:
        objects: That live all the time.
    """

    def __init__(self, objects: int) -> None:
        self.texts: deque[list[Any]] = deque(([n, [n]] for n in range(objects)), maxlen=objects)

    def replace(self, count: int) -> None:
        """Replace the oldest, once all new ones are there: Python counts those that are made less
        those that are freed."""
        self.texts.extend([[number, [number]] for number in range(count)])


def free_memory() -> None:
    """As advised against running out of it."""
    gc.collect()


def log_metrics(file: TextIO, step: int, loss: Tensor | None, values: Tensor) -> None:
    """A line with everything."""
    seen = 0.0 if loss is None else loss.item()
    line = {"step": step, "loss": seen, "histogram": values.tolist()}
    print(json.dumps(line), file=file, flush=True)


def remember(kept: list[Tensor], count: int) -> None:
    """Keep activations for a plot that nobody draws."""
    kept.append(torch.ones(count, WIDTH))


def main() -> None:
    """Train, and do what is asked for."""
    parser = arguments(__doc__)
    parser.add_argument("--does", choices=PLACES, default="collect")
    parser.add_argument("--every", type=int, default=25)
    parser.add_argument(
        "--shift", type=int, default=0, help="steps from one rank's turn to another's"
    )
    parser.add_argument("--amount", type=int, default=300_000, help="objects, values or rows")
    options = parser.parse_args()
    join()
    seconds = row_seconds(options)
    job = make_job(options.strategy, lambda layers: Network(layers, row_seconds=seconds))
    does = options.does if is_chosen(options) else "none"
    corpus = Corpus(options.amount if does in ("collect", "churn") else 0)
    # A full collection comes once a quarter of all objects is new; a text has two.
    churned = len(gc.get_objects()) // 8 // options.every
    values = torch.randn(options.amount if does == "log" else 0)
    kept: list[Tensor] = []
    batches = random_batches()
    with Path(os.devnull).open("w", encoding="utf-8") as file:
        for step in range(options.steps):
            loss = job.train_step(next(batches))
            turn = (step + options.shift * dist.get_rank()) % options.every
            if does == "collect" and turn == options.every - 1:
                free_memory()
            if does == "churn":
                corpus.replace(churned)
            if does == "log":
                log_metrics(file, step, loss, values)
            if does == "remember":
                remember(kept, options.amount)
    leave()


if __name__ == "__main__":
    main()
