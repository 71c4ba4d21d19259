"""A rank from joining the others to its record, whatever happens on the way."""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from pathlib import Path

import torch

from torchscale.schema.cell import LaunchTask
from torchscale.schema.progress import Progress
from torchscale.worker.failure import describe_failure
from torchscale.worker.outbox import Outbox
from torchscale.worker.ranks import joined_ranks
from torchscale.worker.recording import record
from torchscale.worker.train import Started, train


def run_rank(task: LaunchTask, directory: Path, started: float) -> int:
    """Train and write the record, or the failure; returns the exit status.

    ``started`` is ``time.perf_counter()`` at the start of the process.
    """
    outbox = Outbox(directory, int(os.environ["RANK"]))
    try:
        _run(task, outbox, started)
    except BaseException as error:  # noqa: BLE001 - whatever a model or torch raises must reach the launcher as a file
        outbox.failure(describe_failure(error, int(os.environ["RANK"])))
        traceback.print_exc(file=sys.stderr)
        return 1
    return 0


def _run(task: LaunchTask, outbox: Outbox, started: float) -> None:
    imported = time.perf_counter()
    outbox.progress(Progress(phase="starting"))
    torch.set_num_threads(task.threads_per_rank)
    with joined_ranks(task) as ranks:
        times = Started(import_seconds=imported - started, process_group_seconds=time.perf_counter() - imported)
        if task.recording is not None:
            record(task, task.recording, ranks, outbox)
        else:
            outbox.record(train(task, ranks, outbox, times))
        gc.collect()  # DDP's reducer must go before its process group
