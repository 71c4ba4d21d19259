"""A job of which one rank starts later than the others.

::

    torchrun --standalone --nproc-per-node 2 benchmarks/jobs/starting.py --rank 1 --seconds 5
"""

from __future__ import annotations

import os
import time

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

FIRST_STEPS = 3


def prepare_data(seconds: float) -> None:
    """Before the rank joins."""
    time.sleep(seconds)


def import_tokenizer(seconds: float) -> None:
    """A module that takes long to import, before the rank joins."""
    os.environ["SLOW_MODULE_SECONDS"] = str(seconds)
    import slow_module  # noqa: F401, PLC0415 - it is imported here to be late


def fill_cache(seconds: float) -> None:
    """In each of the first steps."""
    time.sleep(seconds / FIRST_STEPS)


def main() -> None:
    """Train, later."""
    parser = arguments(__doc__)
    parser.add_argument("--late", choices=("data", "import", "cache"), default="data")
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    if options.late != "cache" and int(os.environ["RANK"]) == options.rank:
        (prepare_data if options.late == "data" else import_tokenizer)(options.seconds)
    join()
    seconds = row_seconds(options)
    job = make_job(options.strategy, lambda layers: Network(layers, row_seconds=seconds))
    batches = random_batches()
    for step in range(options.steps):
        if options.late == "cache" and step < FIRST_STEPS and is_chosen(options):
            fill_cache(options.seconds)
        job.train_step(next(batches))
    leave()


if __name__ == "__main__":
    main()
