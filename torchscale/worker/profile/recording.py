"""Records steps of a cell in one rank: builds the model, warms up, records the same whole steps on
all ranks."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from time import perf_counter

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import record_function

from torchscale.config.choices import Tool
from torchscale.schema.cells.training import TrainingCell
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.rank import DataUse
from torchscale.schema.profiles.nvtx_names import CAPTURE, DATA_WAIT, rank_mark, step_name
from torchscale.schema.profiles.recording import RecordedRank
from torchscale.schema.profiles.request import RecordRequest
from torchscale.util.files import atomic_write_model
from torchscale.worker.data.interface import Source
from torchscale.worker.gradient_sync import GradientSyncWatch
from torchscale.worker.memory.heap import prepare_for_profiler
from torchscale.worker.models import import_model
from torchscale.worker.models.interface import BatchOfTensors
from torchscale.worker.process_group import Ranks
from torchscale.worker.profile.gloo_ranges import gloo_ranges
from torchscale.worker.profile.nvtx import Nvtx, nvtx_for, ranged
from torchscale.worker.profile.phase_ranges import PhaseRanges
from torchscale.worker.profile.step_profiler import WARMUP_STEPS, StepProfiler
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.trainer import Trainer

_WARMUP_SECONDS = 3.0
"""Enough for allocator, cuDNN and clocks; a recording shows the structure of steps and feeds no
throughput."""
_MAX_WARMUP_STEPS = 50
"""Fast steps are warm after fewer than 3 s."""
_MIN_STEPS = 2
"""A single step would not show what repeats."""
_MIN_SETTLE_STEPS, _MAX_SETTLE_STEPS = 3, 500
"""Also for slow steps, so that each process has launched; and no more than enlarges the report
needlessly."""
_BYTES_OF_PARAMETER = 5
"""Bytes per parameter that a recorded step takes: 4 of its gradient in fp32, and a quarter more for
activations and the profiler's own records."""
_STEPS_IN_FLIGHT = 2
"""One that the device works on, and one that waits, so that it is never idle for want of work."""


def record(cell: TrainingCell, request: RecordRequest, ranks: Ranks, files: RankFiles) -> None:
    """Record the cell's steps as ``request`` asks. Each rank writes ``recorded-rank-R.json`` when
    its part is complete."""
    files.progress(Progress(phase="building"))
    import_model(cell)
    trainer = Trainer(cell, ranks)
    files.progress(Progress(phase="warming up"))
    trainer.run_batch(1)
    timed = trainer.run_batch(2)
    step_seconds = ranks.broadcast_scalar(timed.batch.seconds / 2)
    trainer.run_batch(
        max(request.skip_steps, min(_MAX_WARMUP_STEPS, int(_WARMUP_SECONDS / step_seconds)))
    )
    steps = max(_MIN_STEPS, min(request.max_steps, round(request.seconds / step_seconds)))
    files.progress(Progress(phase="recording", steps=steps))
    if request.tool is Tool.KINETO and ranks.device.type == "cpu":
        prepare_for_profiler(
            expected_bytes=(WARMUP_STEPS + steps) * trainer.parameters * _BYTES_OF_PARAMETER
        )
    ranks.barrier()
    if request.tool is Tool.KINETO:
        _with_torch_profiler(trainer, request, ranks, files, steps)
    else:
        _for_nsys(trainer, request, ranks, files, steps=steps, step_seconds=step_seconds)
    detail = "nsys writes its report" if request.tool is Tool.NSYS else ""
    files.progress(Progress(phase="finishing", detail=detail))
    ranks.barrier()
    trainer.close()


def _with_torch_profiler(
    trainer: Trainer, request: RecordRequest, ranks: Ranks, files: RankFiles, steps: int
) -> None:
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


def _settle_steps(step_seconds: float, settle_seconds: float) -> int:
    """Steps that run, unmarked, until every process is recorded."""
    return max(_MIN_SETTLE_STEPS, min(_MAX_SETTLE_STEPS, math.ceil(settle_seconds / step_seconds)))


def paced(steps: int, device: torch.device) -> Iterator[int]:
    """Numbers from 0, each once a GPU has done the step before the last: ranges on the host's clock
    then hold the work of their steps, as far as a step. Launches of CUDA graphs would run hundreds
    of steps ahead."""
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


class _CudaCapture:
    """The stretch of a recording between cudaProfilerStart and cudaProfilerStop.

    Every process asks for the start: the first one starts the session, and each starts its own
    tracing. Only one process ends the recording: the first cudaProfilerStop ends it for all.
    """

    settle_seconds = 1.5
    """Collection starts some hundred milliseconds after cudaProfilerStart, and not at the same
    moment in every process."""

    def __init__(self, ranks: Ranks) -> None:
        self._ends, self._cuda = ranks.local_rank == 0, torch.cuda.cudart()  # type: ignore[no-untyped-call]

    def begin(self) -> None:
        """Start the session, or this process's tracing."""
        self._cuda.cudaProfilerStart()

    def end(self) -> None:
        """CUPTI flushes its buffers here, not at exit."""
        if self._ends:
            self._cuda.cudaProfilerStop()


class _RangeCapture:
    """A recording within an NVTX range of one process, which starts and ends the recording of all.
    A range in each process would end it with the first."""

    settle_seconds = 0.5
    """All processes are recorded some ten milliseconds after the range begins."""

    def __init__(self, ranks: Ranks, nvtx: Nvtx) -> None:
        self._is_mine, self._nvtx = ranks.local_rank == 0, nvtx

    def begin(self) -> None:
        """Open the range."""
        if self._is_mine:
            self._nvtx.push(CAPTURE)

    def end(self) -> None:
        """Close it."""
        if self._is_mine:
            self._nvtx.pop()


def _for_nsys(
    trainer: Trainer,
    request: RecordRequest,
    ranks: Ranks,
    files: RankFiles,
    *,
    steps: int,
    step_seconds: float,
) -> None:
    """Run marked steps for the nsys that wraps this process. Steps until every process is recorded
    are not marked, and steps are marked with the rank, so that a mark that is missed does not
    matter."""
    nvtx = nvtx_for(ranks.device)
    on_cuda = ranks.device.type == "cuda"
    capture = _CudaCapture(ranks) if on_cuda else _RangeCapture(ranks, nvtx)
    phases = PhaseRanges(nvtx)
    trainer.source = _MarkedSource(trainer.source, lambda name: ranged(nvtx, name))
    trainer.marks.on_phase = phases.begin
    watch = None if on_cuda else _watch_of_waits(trainer, phases)
    with (
        phases.collections_marked(),
        contextlib.nullcontext() if on_cuda else gloo_ranges(nvtx, phases),
    ):
        capture.begin()
        ranks.barrier()
        for _ in paced(_settle_steps(step_seconds, capture.settle_seconds), ranks.device):
            trainer.step()
        _finish_device(ranks.device)
        ranks.barrier()
        began = perf_counter()
        try:
            for step in paced(steps, ranks.device):
                nvtx.mark(rank_mark(ranks.rank, ranks.world_size))
                with ranged(nvtx, step_name(step)):
                    trainer.step()
                    if step == steps - 1:
                        _finish_device(
                            ranks.device
                        )  # within the last range, which then ends with the work
                files.progress(Progress(phase="recording", steps=step))
        finally:
            _finish_device(ranks.device)
            seconds = perf_counter() - began
            phases.end()
            ranks.barrier()
            capture.end()
    if watch is not None:
        watch.stop()
    trainer.marks.on_phase = None
    trainer.clear_marks()
    done = RecordedRank(
        rank=ranks.rank,
        world_size=ranks.world_size,
        pid=os.getpid(),
        trace=None,
        steps=steps,
        seconds=seconds,
    )
    atomic_write_model(Path(request.directory) / f"recorded-rank-{ranks.rank}.json", done)


def _watch_of_waits(trainer: Trainer, phases: PhaseRanges) -> GradientSyncWatch | None:
    """Ends the backward pass's range at the last gradient where DDP then waits within torch, and
    the trainer does not watch for that itself, since the strategy has further collectives; ``None``
    elsewhere."""
    if trainer.watch is not None or not any(
        isinstance(part, DistributedDataParallel) for part in trainer.model.modules()
    ):
        return None
    watch = GradientSyncWatch(
        trainer.module,
        trainer.named_parameters.values(),
        lambda _, begun: phases.begin(begun),
        buffers=False,
    )
    watch.start()
    trainer.step()
    watch.settle()
    return watch


class _MarkedSource:
    """A source whose data waits are marked in the recording."""

    def __init__(
        self, source: Source, mark: Callable[[str], AbstractContextManager[object]]
    ) -> None:
        self._source, self._mark = source, mark

    def next_batch(self) -> BatchOfTensors:
        """The next batch; the wait for it is marked."""
        with self._mark(DATA_WAIT):
            return self._source.next_batch()

    @property
    def epoch_samples(self) -> int | None:
        """Samples of an epoch of the wrapped source."""
        return self._source.epoch_samples

    def use(self) -> DataUse | None:
        """Data that the wrapped source used."""
        return self._source.use()

    def close(self) -> None:
        """Close the wrapped source."""
        self._source.close()
