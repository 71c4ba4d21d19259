"""One recording of one cell, as one rank lives it: build, warm up, record whole steps on all ranks together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch
from torch.profiler import record_function

from torchscale.schema.cell import Cell
from torchscale.schema.progress import Progress
from torchscale.schema.record import DataUse
from torchscale.schema.record_request import RecordRequest, Tool
from torchscale.schema.recording import RecordedRank
from torchscale.store import atomic_write_model
from torchscale.worker.data.interface import Source
from torchscale.worker.models import import_model
from torchscale.worker.models.interface import BatchOfTensors
from torchscale.worker.outbox import Outbox
from torchscale.worker.ranks import Ranks
from torchscale.worker.step_profiler import WARMUP_STEPS, StepProfiler
from torchscale.worker.trainer import Trainer

_WARMUP_SECONDS = 3.0
_MAX_WARMUP_STEPS = 50
_MIN_STEPS = 2


def record(cell: Cell, request: RecordRequest, ranks: Ranks, outbox: Outbox) -> None:
    """Record the cell's steps; each rank writes ``recorded-rank-R.json`` once its part is whole."""
    outbox.progress(Progress(phase="building"))
    import_model(cell)
    trainer = Trainer(cell, ranks)
    outbox.progress(Progress(phase="warming up"))
    trainer.run_batch(1)
    probe = trainer.run_batch(2)
    step_seconds = ranks.agree(probe.batch.seconds / 2)
    trainer.run_batch(max(request.skip_steps, min(_MAX_WARMUP_STEPS, int(_WARMUP_SECONDS / step_seconds))))
    steps = max(_MIN_STEPS, min(request.max_steps, round(request.seconds / step_seconds)))
    outbox.progress(Progress(phase="recording", steps=steps))
    ranks.align()
    if request.tool is Tool.KINETO:
        _with_torch_profiler(trainer, request, ranks, outbox, steps)
    else:
        _for_nsys(trainer, request, ranks, outbox, steps)
    outbox.progress(Progress(phase="finishing"))
    ranks.align()
    trainer.close()


def _with_torch_profiler(trainer: Trainer, request: RecordRequest, ranks: Ranks, outbox: Outbox, steps: int) -> None:
    trainer.source = _Annotated(trainer.source, record_function)
    profiler = StepProfiler(request, ranks.rank, ranks.world_size, steps)
    profiler.start()
    for step in range(WARMUP_STEPS + steps):
        trainer.step()
        profiler.step()
        outbox.progress(Progress(phase="recording", steps=step))
    profiler.close()
    trainer.forget_marks()


def _for_nsys(trainer: Trainer, request: RecordRequest, ranks: Ranks, outbox: Outbox, steps: int) -> None:
    """Marks for the nsys that runs around us, which captures between the profiler's start and stop."""
    cuda = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    trainer.source = _Annotated(trainer.source, _nvtx_range)
    if ranks.local_rank == 0:
        cuda.cudaProfilerStart()
    ranks.align()
    torch.cuda.nvtx.mark(f"torchscale.rank {ranks.rank}/{ranks.world_size}")  # type: ignore[no-untyped-call]
    began = time.perf_counter()
    try:
        for step in range(steps):
            with _nvtx_range(f"torchscale.step {step}"):
                trainer.step()
            outbox.progress(Progress(phase="recording", steps=step))
    finally:
        torch.cuda.synchronize()
        seconds = time.perf_counter() - began
        ranks.align()
        if ranks.local_rank == 0:
            cuda.cudaProfilerStop()  # CUPTI hands over what it holds here, not at exit
    trainer.forget_marks()
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


class _Annotated:
    """A source whose waits are seen in the recording."""

    def __init__(self, source: Source, mark: Callable[[str], AbstractContextManager[object]]) -> None:
        self._source, self._mark = source, mark

    def next_batch(self) -> BatchOfTensors:
        """The next batch, under a mark."""
        with self._mark("torchscale.data_wait"):
            return self._source.next_batch()

    @property
    def epoch_samples(self) -> int | None:
        """As the source says."""
        return self._source.epoch_samples

    def use(self) -> DataUse | None:
        """As the source says."""
        return self._source.use()

    def close(self) -> None:
        """End the source."""
        self._source.close()
