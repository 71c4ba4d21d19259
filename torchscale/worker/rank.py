"""Runs a launch in one rank: joins the process group, measures, and writes the record or the
failure."""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import traceback
from pathlib import Path
from time import perf_counter, time

import torch
import torch.distributed as dist

from torchscale.catalog.models import find_model
from torchscale.schema.cells.kinds import AnyCell, training_workload
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.processes.exit import flush_output
from torchscale.worker.compiler import import_compiler
from torchscale.worker.failure import describe_failure
from torchscale.worker.hang import answering_requests, write_dump
from torchscale.worker.kinds import worker_kind
from torchscale.worker.models import import_model
from torchscale.worker.process_group import joined_ranks
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.train import Started
from torchscale.worker.watch.ring_settings import ask_for_ring


def import_for_training() -> None:
    """Import what every launch that trains needs. What cannot be imported fails in the launch."""
    with contextlib.suppress(Exception):
        import_compiler()
        worker_kind("training")


def import_known_libraries(cell: AnyCell) -> None:
    """Import what a launch of ``cell`` needs, but for a user's module: it may read the rank, choose
    a device or start threads when it is imported. What cannot be imported fails in the launch,
    which has a record."""
    training = training_workload(cell)
    with contextlib.suppress(Exception):
        if training is not None:
            import_compiler()
        worker_kind(cell.kind)
        if training is None:
            return
        if find_model(training.model) is not None:
            import_model(training)


def run_rank(
    task: LaunchTask, directory: Path, started: float, name: str = "", *, is_last: bool = False
) -> int:
    """Run the task and write the record, or the failure. Returns the exit status.

    Args:
        task: What to run.
        directory: Where the record goes.
        started: ``time.perf_counter()`` at the start of the process or of this launch.
        name: Differs between launches that share torchrun's store.
        is_last: Whether the process ends after it, which then frees nothing that its end frees.
    """
    rank = int(os.environ["RANK"])
    ask_for_ring()
    files = RankFiles(directory, rank)
    since = time()  # by this node's clock, as are the times of the flight recorder
    with answering_requests(directory, rank, since):
        try:
            _run(task, files, started, name, is_last=is_last)
            if not is_last:
                _free_resources()
        except BaseException as error:  # noqa: BLE001 - whatever a model or torch raises must reach the launcher as a file
            files.failure(describe_failure(error, rank))
            if dist.is_available() and dist.is_initialized():
                write_dump(directory, rank, since, error)
            traceback.print_exc(file=sys.stderr)
            return 1
    return 0


def _run(task: LaunchTask, files: RankFiles, started: float, name: str, *, is_last: bool) -> None:
    kind = worker_kind(
        task.cell.kind
    )  # before the clock is read: it is imported here, if no launch before did
    imported = perf_counter()
    files.progress(Progress(phase="starting"))
    torch.set_num_threads(task.threads_per_rank)
    # Resident memory includes that of earlier launches in this process; the CUDA allocator's peak
    # is reset.
    memory_is_ours = task.device == "cuda" or is_last or name == "launch-0"
    with joined_ranks(task, name, is_last=is_last) as ranks:
        times = Started(imported - started, perf_counter() - imported, memory_is_ours)
        record = kind.measure(task, task.cell, ranks, files, times)
        if record is not None:
            flush_output()  # the launcher reads NCCL's log as soon as every record is there
            files.record(record)
        if not (is_last and ranks.backend in (None, "gloo")):
            gc.collect()  # DDP's reducer must go before its process group


def _free_resources() -> None:
    """Free what a launch holds (garbage, compiled code, CUDA cache) before the next one in this
    process."""
    gc.collect()
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        torch.cuda.empty_cache()
