"""A rank from joining the others to its record, whatever happens on the way."""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from pathlib import Path

import torch

from torchscale.schema.cell import Cell
from torchscale.schema.collectives import CollectivesCell
from torchscale.schema.hardware import HardwareCell
from torchscale.schema.progress import Progress
from torchscale.schema.task import LaunchTask
from torchscale.worker.collectives import measure_collectives
from torchscale.worker.failure import describe_failure
from torchscale.worker.hardware import measure_hardware
from torchscale.worker.outbox import Outbox
from torchscale.worker.ranks import joined_ranks
from torchscale.worker.recording import record
from torchscale.worker.train import Started, train


def run_rank(task: LaunchTask, directory: Path, started: float, name: str = "") -> int:
    """Train and write the record, or the failure; returns the exit status.

    ``started`` is ``time.perf_counter()`` at the start of the process, or of this launch; ``name`` tells one of several
    launches in a process from the others.
    """
    outbox = Outbox(directory, int(os.environ["RANK"]))
    try:
        _run(task, outbox, started, name)
        _forget()
    except BaseException as error:  # noqa: BLE001 - whatever a model or torch raises must reach the launcher as a file
        outbox.failure(describe_failure(error, int(os.environ["RANK"])))
        traceback.print_exc(file=sys.stderr)
        return 1
    return 0


def _run(task: LaunchTask, outbox: Outbox, started: float, name: str) -> None:
    imported = time.perf_counter()
    outbox.progress(Progress(phase="starting"))
    torch.set_num_threads(task.threads_per_rank)
    # Resident memory of the launches before would be taken for this one's; the CUDA allocator counts anew.
    memory_is_ours = task.device == "cuda" or name in ("", "launch-0")
    with joined_ranks(task, name) as ranks:
        times = Started(imported - started, time.perf_counter() - imported, memory_is_ours)
        cell = task.cell
        if isinstance(cell, Cell) and task.recording is not None:
            record(cell, task.recording, ranks, outbox)
        elif isinstance(cell, Cell):
            outbox.record(train(task, cell, ranks, outbox, times))
        elif isinstance(cell, CollectivesCell):
            outbox.record(measure_collectives(task, cell, ranks, outbox))
        elif isinstance(cell, HardwareCell):
            outbox.record(measure_hardware(task, cell, ranks, outbox))
        else:
            from torchscale.worker.model_memory import measure_memory  # noqa: PLC0415 - its tracker is slow to import

            outbox.record(measure_memory(task, cell, ranks, outbox))
        gc.collect()  # DDP's reducer must go before its process group


def _forget() -> None:
    """Leave nothing of a launch to the next one of this process."""
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
