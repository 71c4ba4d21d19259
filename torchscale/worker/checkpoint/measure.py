"""Measures a checkpoint cell in one rank: synchronous saves, cold loads, asynchronous saves."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver

from torchscale.schema.cells.checkpoint import (
    AsyncSaveSample,
    CheckpointCell,
    CheckpointRank,
    LoadSample,
    SaveSample,
)
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.task import LaunchTask
from torchscale.worker.checkpoint.place import filesystem_type, made_place
from torchscale.worker.checkpoint.progress import followed
from torchscale.worker.checkpoint.state import (
    State,
    buffers_of,
    digest,
    set_state,
    spoil,
    state_bytes,
    state_of,
)
from torchscale.worker.checkpoint.storage import TimedReader, TimedWriter
from torchscale.worker.identity import rank_identity
from torchscale.worker.measure.host import host_load_meter
from torchscale.worker.measure.page_cache import drop_from_cache, resident_share
from torchscale.worker.measure.process_io import device_read_bytes
from torchscale.worker.memory.model_memory import take_first_step
from torchscale.worker.models import import_model
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles
from torchscale.worker.trainer import Trainer

_STEPS_BETWEEN = 2
"""Steps before each synchronous save: the state is another one each time, and the last step that the
stop is counted from is an ordinary one."""


def measure_checkpoint(
    task: LaunchTask, cell: CheckpointCell, ranks: Ranks, files: RankFiles
) -> CheckpointRank:
    """Train a few steps, then save and load ``cell.repeats`` times. Returns the record of this rank.

    Raises:
        PlaceError: the directory cannot be written, or has too little room.
    """
    files.progress(Progress(phase="building"))
    import_model(cell.training)
    trainer = Trainer(
        cell.training, ranks, lambda: files.progress(Progress(phase="preparing data"))
    )
    files.progress(Progress(phase="warming up"))
    take_first_step(trainer, ranks)
    values, needed = state_bytes(state_of(trainer), ranks)
    with made_place(cell, files.directory, ranks, needed) as place:
        bench = _Bench(cell, trainer, ranks, files, place)
        bench.warm_up()
        load = host_load_meter(task)
        saves, loads = bench.synchronous()
        not_async = _async_obstacle(ranks)
        async_saves: tuple[AsyncSaveSample, ...] = ()
        if cell.asynchronous and not not_async:
            async_saves = bench.asynchronous()
        host_load, filesystem = load.read(), filesystem_type(place)
    files.progress(Progress(phase="finishing"))
    trainer.close()
    return CheckpointRank(
        **dict(rank_identity(task, ranks)),
        place=str(place.parent if cell.path is not None else place),
        filesystem=filesystem,
        state_bytes=values,
        saves=saves,
        async_saves=async_saves,
        loads=loads,
        not_async=not_async if cell.asynchronous else "",
        host_load=host_load,
    )


def _async_obstacle(ranks: Ranks) -> str:
    """Why torch cannot save asynchronously here; empty where it can."""
    if not hasattr(state_dict_saver, "async_save"):
        return f"torch {torch.__version__} has no torch.distributed.checkpoint.async_save"
    if ranks.device.type == "mps":
        return "torch copies no state from mps in the background"
    return ""


class _Bench:
    """Saves and loads of one training state."""

    def __init__(
        self, cell: CheckpointCell, trainer: Trainer, ranks: Ranks, files: RankFiles, place: Path
    ) -> None:
        self._cell, self._trainer, self._ranks = cell, trainer, ranks
        self._files, self._place = files, place
        self._now = Progress(phase="measuring")
        # The background thread must not meet the collectives of the steps in one group. It sends
        # objects, and those by gloo.
        self._group = dist.new_group(backend="gloo")

    def warm_up(self) -> None:
        """Save and load a single number in each way: the first calls import modules and start
        threads."""
        state = {"number": torch.zeros(1)}
        with self._directory("warm-up") as directory:
            self._save(state, TimedWriter(directory, threads=self._cell.threads))
            self._load(state, TimedReader(directory))
        if not _async_obstacle(self._ranks):
            with self._directory("warm-up-async") as directory:
                writer = TimedWriter(directory, threads=self._cell.threads)
                self._start_save(state, writer).result()

    def synchronous(self) -> tuple[tuple[SaveSample, ...], tuple[LoadSample, ...]]:
        """Every repeat: steps, a save, and a cold load of what was saved."""
        saves, loads = [], []
        for number in range(self._cell.repeats):
            with self._directory(f"save-{number}") as directory:
                self._report(f"save {number + 1} of {self._cell.repeats}")
                saves.append(self._timed_save(directory))
                self._report(f"load {number + 1} of {self._cell.repeats}")
                loads.append(self._timed_load(directory))
        return tuple(saves), tuple(loads)

    def asynchronous(self) -> tuple[AsyncSaveSample, ...]:
        """Every repeat: steps before, during and after a save."""
        samples = []
        for number in range(self._cell.repeats):
            with self._directory(f"async-{number}") as directory:
                self._report(f"asynchronous save {number + 1} of {self._cell.repeats}")
                samples.append(self._timed_async_save(directory))
        return tuple(samples)

    def _timed_save(self, directory: Path) -> SaveSample:
        self._trainer.run_batch(_STEPS_BETWEEN)
        stopped = perf_counter()
        state = state_of(self._trainer)
        writer = TimedWriter(directory, threads=self._cell.threads)
        seconds = self._save(state, writer)
        return SaveSample(
            payload_bytes=writer.payload_bytes,
            write_seconds=writer.seconds,
            write_cpu_seconds=writer.cpu_seconds,
            seconds=seconds,
            stop_seconds=perf_counter() - stopped,
        )

    def _timed_load(self, directory: Path) -> LoadSample:
        state = state_of(self._trainer)
        left_out: frozenset[str] = frozenset()
        if self._ranks.world_size > 1:
            left_out = buffers_of(self._trainer, state)
        saved = digest(state, left_out)
        spoil(state)
        paths = sorted(path for path in directory.rglob("*") if path.is_file())
        self._ranks.barrier()
        drop_from_cache(paths)
        self._ranks.barrier()
        resident = resident_share(paths)
        reader = TimedReader(directory)
        self._ranks.barrier()
        before = device_read_bytes()
        seconds = self._load(state, reader)
        after = device_read_bytes()
        set_state(self._trainer, state)
        return LoadSample(
            payload_bytes=reader.payload_bytes,
            read_seconds=reader.seconds,
            read_cpu_seconds=reader.cpu_seconds,
            seconds=seconds,
            resident_share=resident,
            device_bytes=None if before is None or after is None else after - before,
            restored=digest(state_of(self._trainer), left_out) == saved,
        )

    def _timed_async_save(self, directory: Path) -> AsyncSaveSample:
        before = self._timed_steps(self._cell.steps)
        writer = TimedWriter(directory, threads=self._cell.threads)
        ended: list[float] = []
        stopped = perf_counter()
        pending = self._start_save(state_of(self._trainer), writer)
        pending.add_done_callback(lambda _: ended.append(perf_counter()))
        resumed = perf_counter()
        during = self._timed_steps_while(lambda: not ended)
        pending.result()  # an error of the thread is one of the measurement
        after = self._timed_steps(self._cell.steps)
        return AsyncSaveSample(
            payload_bytes=writer.payload_bytes,
            stop_seconds=resumed - stopped,
            durable_seconds=ended[0] - stopped,
            before=before,
            during=during,
            after=after,
            host_bytes=writer.staged_bytes,
        )

    def _timed_steps(self, count: int) -> tuple[float, ...]:
        return tuple(self._timed_step(lambda: False)[0] for _ in range(count))

    def _timed_steps_while(self, is_busy: Callable[[], bool]) -> tuple[float, ...]:
        """The steps at whose end any rank was busy: as many on every rank."""
        times: list[float] = []
        while True:
            seconds, busy = self._timed_step(is_busy)
            if not busy:
                return tuple(times)
            times.append(seconds)
            self._files.progress(self._now)

    def _timed_step(self, is_busy: Callable[[], bool]) -> tuple[float, bool]:
        """Seconds of a step with the question to all ranks, and whether any of them is busy."""
        began = perf_counter()
        self._trainer.run_batch(1)
        busy = self._ranks.add_up(torch.tensor([float(is_busy())]))
        return perf_counter() - began, bool(busy.item())

    def _save(self, state: State, writer: TimedWriter) -> float:
        self._ranks.barrier()
        with followed(self._is_alive, self._place):
            began = perf_counter()
            state_dict_saver.save(state, storage_writer=writer, process_group=self._group)
            return perf_counter() - began

    def _start_save(self, state: State, writer: TimedWriter) -> Future[Any]:
        """Save in the background; the state is copied when this returns."""
        pending = state_dict_saver.async_save(
            state, storage_writer=writer, process_group=self._group
        )
        return cast("Future[Any]", pending)  # an AsyncSaveResponse comes of other stagers only

    def _load(self, state: State, reader: TimedReader) -> float:
        self._ranks.barrier()
        with followed(self._is_alive, self._place):
            began = perf_counter()
            state_dict_loader.load(state, storage_reader=reader, process_group=self._group)
            return perf_counter() - began

    @contextmanager
    def _directory(self, name: str) -> Iterator[Path]:
        """A directory for one checkpoint, which is removed: the disk must hold one at a time."""
        directory = self._place / name
        yield directory
        self._ranks.barrier()
        if self._ranks.rank == 0:
            shutil.rmtree(directory)
        self._ranks.barrier()

    def _report(self, what: str) -> None:
        self._now = Progress(phase="measuring", detail=what)
        self._files.progress(self._now)

    def _is_alive(self) -> None:
        self._files.alive(self._now)
