"""Records steps of a cell in one rank: builds the model, warms up, records the same whole steps on all ranks."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from time import perf_counter

import torch
from torch.profiler import record_function

from torchscale.config.choices import Tool
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.rank import DataUse
from torchscale.schema.profiles.recording import RecordedRank
from torchscale.schema.profiles.request import RecordRequest
from torchscale.util.files import atomic_write_model
from torchscale.worker.data.interface import Source
from torchscale.worker.heap import prepare_for_profiler
from torchscale.worker.models import import_model
from torchscale.worker.models.interface import BatchOfTensors
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.step_profiler import WARMUP_STEPS, StepProfiler
from torchscale.worker.trainer import Trainer

_WARMUP_SECONDS = 3.0
"""Enough for allocator, cuDNN and clocks; a recording shows the structure of steps and feeds no throughput."""
_MAX_WARMUP_STEPS = 50
"""Fast steps are warm after fewer than 3 s."""
_MIN_STEPS = 2
"""A single step would not show what repeats."""
_SETTLE_SECONDS = 1.5
"""Collection by nsys starts some hundred milliseconds after cudaProfilerStart, and not at the same moment in every
process."""
_MIN_SETTLE_STEPS, _MAX_SETTLE_STEPS = 3, 500
"""Also for slow steps, so that each process has launched; and no more than enlarges the report needlessly."""
_BYTES_OF_PARAMETER = 5
"""That a recorded step takes: 4 of its gradient in fp32, and a quarter more for activations and the profiler's own
records."""
_STEPS_IN_FLIGHT = 2
"""One that the device works on, and one that waits, so that it is never idle for want of work."""


def record(cell: TrainingCell, request: RecordRequest, ranks: Ranks, files: RankFiles) -> None:
    """Record the cell's steps as ``request`` asks. Each rank writes ``recorded-rank-R.json`` when its part is
    complete."""
    files.progress(Progress(phase="building"))
    import_model(cell)
    trainer = Trainer(cell, ranks)
    files.progress(Progress(phase="warming up"))
    trainer.run_batch(1)
    timed = trainer.run_batch(2)
    step_seconds = ranks.broadcast_scalar(timed.batch.seconds / 2)
    trainer.run_batch(max(request.skip_steps, min(_MAX_WARMUP_STEPS, int(_WARMUP_SECONDS / step_seconds))))
    steps = max(_MIN_STEPS, min(request.max_steps, round(request.seconds / step_seconds)))
    files.progress(Progress(phase="recording", steps=steps))
    if request.tool is Tool.KINETO and ranks.device.type == "cpu":
        prepare_for_profiler(expected_bytes=(WARMUP_STEPS + steps) * trainer.parameters * _BYTES_OF_PARAMETER)
    ranks.barrier()
    if request.tool is Tool.KINETO:
        _with_torch_profiler(trainer, request, ranks, files, steps)
    else:
        _for_nsys(trainer, request, ranks, files, steps, settle_steps=_settle_steps(step_seconds))
    detail = "nsys writes its report" if request.tool is Tool.NSYS else ""
    files.progress(Progress(phase="finishing", detail=detail))
    ranks.barrier()
    trainer.close()


def _with_torch_profiler(trainer: Trainer, request: RecordRequest, ranks: Ranks, files: RankFiles, steps: int) -> None:
    trainer.source = _MarkedSource(trainer.source, record_function)
    profiler = StepProfiler(request, ranks.rank, ranks.world_size, steps)
    profiler.start()
    for step in paced(WARMUP_STEPS + steps, ranks.device):
        trainer.step()
        if step == WARMUP_STEPS + steps - 1:
            _finish_device(ranks.device)
        profiler.step()
        files.progress(Progress(phase="recording", steps=step))
    profiler.close()
    trainer.clear_marks()


def _settle_steps(step_seconds: float) -> int:
    """Steps that run, unmarked, until every process is recorded."""
    return max(_MIN_SETTLE_STEPS, min(_MAX_SETTLE_STEPS, math.ceil(_SETTLE_SECONDS / step_seconds)))


def paced(steps: int, device: torch.device) -> Iterator[int]:
    """Numbers from 0, each once a GPU has done the step before the last: ranges on the host's clock then hold the work
    of their steps, as far as a step. Launches of CUDA graphs would run hundreds of steps ahead."""
    count = _STEPS_IN_FLIGHT if device.type == "cuda" else 0
    events = [torch.cuda.Event() for _ in range(count)]  # type: ignore[no-untyped-call]
    for step in range(steps):
        if events and step >= _STEPS_IN_FLIGHT:
            events[step % _STEPS_IN_FLIGHT].synchronize()
        yield step
        if events:
            events[step % _STEPS_IN_FLIGHT].record()


def _finish_device(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _for_nsys(
    trainer: Trainer, request: RecordRequest, ranks: Ranks, files: RankFiles, steps: int, *, settle_steps: int
) -> None:
    """Run marked steps for the nsys that wraps this process and captures between cudaProfilerStart and -Stop.

    Every process asks for the start: the first one starts the session, and each starts its own tracing. The steps until
    that is done everywhere are not marked, and steps are marked with the rank, so that a mark that is missed does not
    matter. Only one process ends the recording: the first cudaProfilerStop ends it for all.
    """
    cuda = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    trainer.source = _MarkedSource(trainer.source, _nvtx_range)
    cuda.cudaProfilerStart()
    ranks.barrier()
    for _ in paced(settle_steps, ranks.device):
        trainer.step()
    _finish_device(ranks.device)
    ranks.barrier()
    began = perf_counter()
    try:
        for step in paced(steps, ranks.device):
            torch.cuda.nvtx.mark(f"torchscale.rank {ranks.rank}/{ranks.world_size}")  # type: ignore[no-untyped-call]
            with _nvtx_range(f"torchscale.step {step}"):
                trainer.step()
                if step == steps - 1:
                    _finish_device(ranks.device)  # within the last range, which then ends with the work
            files.progress(Progress(phase="recording", steps=step))
    finally:
        _finish_device(ranks.device)
        seconds = perf_counter() - began
        ranks.barrier()
        if ranks.local_rank == 0:
            cuda.cudaProfilerStop()  # CUPTI flushes its buffers here, not at exit
    trainer.clear_marks()
    done = RecordedRank(
        rank=ranks.rank, world_size=ranks.world_size, pid=os.getpid(), trace=None, steps=steps, seconds=seconds
    )
    atomic_write_model(Path(request.directory) / f"recorded-rank-{ranks.rank}.json", done)


@contextmanager
def _nvtx_range(name: str) -> Iterator[None]:
    torch.cuda.nvtx.range_push(name)  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()  # type: ignore[no-untyped-call]


class _MarkedSource:
    """A source whose data waits are marked in the recording."""

    def __init__(self, source: Source, mark: Callable[[str], AbstractContextManager[object]]) -> None:
        self._source, self._mark = source, mark

    def next_batch(self) -> BatchOfTensors:
        """The next batch; the wait for it is marked."""
        with self._mark("torchscale.data_wait"):
            return self._source.next_batch()

    @property
    def epoch_samples(self) -> int | None:
        """Those of the wrapped source."""
        return self._source.epoch_samples

    def use(self) -> DataUse | None:
        """Those of the wrapped source."""
        return self._source.use()

    def close(self) -> None:
        """Close the wrapped source."""
        self._source.close()
