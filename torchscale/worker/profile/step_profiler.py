"""Records some steps of a training loop with torch.profiler, one trace per rank."""

from __future__ import annotations

import gc
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

import torch
from torch.profiler import ProfilerAction, ProfilerActivity, profile, record_function

from torchscale.schema.profiles.recording import CPU_INFO_KEY, RecordedRank
from torchscale.schema.profiles.request import RecordRequest
from torchscale.util.files import atomic_write_model
from torchscale.worker.measure.host import usable_cpus
from torchscale.worker.memory.heap import prepare_for_profiler

WARMUP_STEPS = 2
"""Steps that are profiled but not kept: the profiler's start is slow, and differs between ranks."""
_NEEDLESS = "Warning: Profiler clears events"
"""Printed by torch 2.10 at the start of every recording, which has one cycle alone."""


class StepProfiler:
    """Skips some steps, records some and writes the trace; further steps have no effect. Call
    :meth:`step` after each step."""

    def __init__(
        self, request: RecordRequest, rank: int, world_size: int, steps: int | None = None
    ) -> None:
        """``steps`` is the number of recorded steps; ``None`` records for ``request.seconds``."""
        self._request, self._rank, self._world_size = request, rank, world_size
        self._fixed_steps = steps
        self._skip = request.skip_steps
        self._recorded = -WARMUP_STEPS
        self._began = 0.0
        self._ending = False
        self._profile: profile | None = None
        self._collection: record_function | None = None
        self.done = False

    def start(self) -> None:
        """Start the profiler now, without skipping further steps."""
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            prepare_for_profiler()
        activities = [ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(ProfilerActivity.CUDA)
        self._profile = profile(
            activities=activities,
            schedule=self._action,
            on_trace_ready=self._write,
            record_shapes=True,  # the only source of the sizes of gloo's collectives
            profile_memory=self._request.target.memory,
        )
        cpus = {"threads": torch.get_num_threads(), "cpus": usable_cpus()}
        self._profile.preset_metadata_json(CPU_INFO_KEY, json.dumps(cpus))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=_NEEDLESS)
            self._profile.start()
        with record_function(
            "torchscale: warm-up"
        ):  # what it imports, it must not import inside a collection:
            pass  # that may run in the middle of an import
        gc.callbacks.append(self._note_collection)

    def step(self) -> None:
        """Call it after each training step: starts, advances or ends the recording."""
        if self.done:
            return
        if self._profile is None:
            self._skip -= 1
            if self._skip <= 0:
                self.start()
            return
        self._recorded += 1
        if self._recorded == 0:
            self._began = perf_counter()
        self._ending = self._recorded >= 0 and self._is_complete(self._recorded + 1)
        if self._recorded > 0 and self._is_complete(self._recorded):
            self.close()
            return
        self._profile.step()

    def close(self) -> None:
        """End the recording and write the steps so far; for programs that end early."""
        if self._profile is not None and not self.done:
            self.done = True
            self._ending = True
            if self._note_collection in gc.callbacks:  # not where its start failed
                gc.callbacks.remove(self._note_collection)
            self._profile.stop()

    def _is_complete(self, steps: int) -> bool:
        if self._fixed_steps is not None:
            return steps >= self._fixed_steps
        elapsed = perf_counter() - self._began if self._recorded > 0 else 0.0
        return steps >= self._request.max_steps or elapsed >= self._request.seconds

    def _action(self, step: int) -> ProfilerAction:
        if step < WARMUP_STEPS:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD

    def _write(self, finished: profile) -> None:
        name = f"rank{self._rank}.pt.trace.json.gz"
        directory = Path(self._request.directory)
        finished.export_chrome_trace(str(directory / f".{name[:-3]}.part.gz"))
        (directory / f".{name[:-3]}.part.gz").replace(directory / name)
        done = RecordedRank(
            rank=self._rank,
            world_size=self._world_size,
            pid=os.getpid(),
            trace=name,
            steps=max(0, self._recorded),
            seconds=perf_counter() - self._began,
        )
        atomic_write_model(directory / f"recorded-rank-{self._rank}.json", done)

    def _note_collection(self, phase: str, info: dict[str, int]) -> None:
        del info
        if phase == "start":
            self._collection = record_function("torchscale.gc")
            self._collection.__enter__()  # type: ignore[no-untyped-call]
        elif self._collection is not None:
            self._collection.__exit__(None, None, None)
            self._collection = None


@contextmanager
def profiled_steps(request_json: str) -> Iterator[StepProfiler]:
    """A profiler for a training script. ``request_json`` is a :class:`RecordRequest`; the rank
    comes from torchrun."""
    request = RecordRequest.model_validate_json(request_json)
    rank, world_size = (
        int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1"))
    )
    profiler = StepProfiler(request, rank, world_size)
    try:
        yield profiler
    finally:
        profiler.close()
