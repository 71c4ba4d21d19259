"""A job of which one rank has larger batches than the others.

::

    torchrun --standalone --nproc-per-node 2 benchmarks/jobs/uneven.py --rank 1 --more 0.4
"""

from __future__ import annotations

from training import (
    ROWS,
    Network,
    arguments,
    is_chosen,
    join,
    leave,
    make_job,
    random_batches,
    row_seconds,
)


def main() -> None:
    """Train."""
    parser = arguments(__doc__)
    parser.add_argument("--more", type=float, default=0.4, help="rows, as a share")
    options = parser.parse_args()
    join()
    seconds = row_seconds(options)
    job = make_job(options.strategy, lambda layers: Network(layers, row_seconds=seconds))
    batches = random_batches(round(ROWS * (1 + options.more)) if is_chosen(options) else ROWS)
    for _ in range(options.steps):
        job.train_step(next(batches))
    leave()


if __name__ == "__main__":
    main()
