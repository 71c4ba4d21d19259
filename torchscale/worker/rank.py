"""Runs a launch in one rank: joins the process group, measures, and writes the record or the failure."""

from __future__ import annotations

import gc
import os
import sys
import traceback
from pathlib import Path
from time import perf_counter

import torch

from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.process_exit import flush_output
from torchscale.worker.failure import describe_failure
from torchscale.worker.kinds import worker_kind
from torchscale.worker.process_group import joined_ranks
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.train import Started


def run_rank(task: LaunchTask, directory: Path, started: float, name: str = "") -> int:
    """Run the task and write the record, or the failure. Returns the exit status.

    ``started`` is ``time.perf_counter()`` at the start of the process or of this launch; ``name`` differs between the
    launches of one process.
    """
    files = RankFiles(directory, int(os.environ["RANK"]))
    try:
        _run(task, files, started, name)
        _free_resources()
    except BaseException as error:  # noqa: BLE001 - whatever a model or torch raises must reach the launcher as a file
        files.failure(describe_failure(error, int(os.environ["RANK"])))
        traceback.print_exc(file=sys.stderr)
        return 1
    return 0


def _run(task: LaunchTask, files: RankFiles, started: float, name: str) -> None:
    kind = worker_kind(task.cell.kind)  # before the clock is read: it is imported here, if no launch before did
    imported = perf_counter()
    files.progress(Progress(phase="starting"))
    torch.set_num_threads(task.threads_per_rank)
    # Resident memory includes that of earlier launches in this process; the CUDA allocator's peak is reset.
    memory_is_ours = task.device == "cuda" or name in ("", "launch-0")
    with joined_ranks(task, name) as ranks:
        times = Started(imported - started, perf_counter() - imported, memory_is_ours)
        record = kind.measure(task, task.cell, ranks, files, times)
        if record is not None:
            flush_output()  # the launcher reads NCCL's log as soon as every record is there
            files.record(record)
        gc.collect()  # DDP's reducer must go before its process group


def _free_resources() -> None:
    """Free what a launch holds (garbage, compiled code, CUDA cache) before the next one in this process."""
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
