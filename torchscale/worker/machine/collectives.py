"""Measures collectives in one rank: every operation, dtype and size, its result checked before and
after timing."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist

from torchscale.config.choices import ElementType, Operation
from torchscale.schema.cells.collectives import (
    CollectiveSample,
    CollectivesCell,
    CollectivesRank,
    PairSample,
)
from torchscale.schema.launch.progress import Progress
from torchscale.schema.launch.task import LaunchTask
from torchscale.util.units import format_bytes
from torchscale.worker.identity import rank_identity
from torchscale.worker.machine.collective_operations import COLLECTIVES, Collective, Message
from torchscale.worker.measure.clock import Clock, HostClock, make_clock
from torchscale.worker.measure.host import HostLoadMeter, host_load_meter
from torchscale.worker.probe.gpu import driver_facts
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles

_PAIR_CALLS = 10
"""Maximum number of messages for each of the n(n-1) pairs and both sizes: 8 ranks have 56 pairs."""
_STRETCH_SECONDS = 0.5
"""Linux counts the time of a core in ticks of up to 10 ms: over half a second the share of other
processes is known to 2 %, a fifth of the share that counts as contention. Small messages take
milliseconds, so several share a stretch."""
_TOPOLOGY_SECONDS = 10.0
"""`nvidia-smi` answers within a few seconds, unless the driver hangs; the measurement must not hang
with it."""
_TOPOLOGY_CHARACTERS = 8000
"""The matrix of 16 GPUs with its legend fits; a record should not grow beyond."""
_UNSUPPORTED = (
    "not support",
    "unsupported",
    "not implemented",
    "no backend type",
    "no algorithm/protocol available",
)
"""The last one is NCCL's, from 2.24 on, where NCCL_ALGO or NCCL_PROTO leaves nothing for an
operation or dtype. It is raised on every rank before anything is sent, so the communicator stays
usable (src/group.cc, groupCleanup)."""
_REDUCTIONS_AND_GATHERS: tuple[Operation, ...] = ("all_reduce", "all_gather", "reduce_scatter")
_OPERATIONS_OF: dict[str, tuple[Operation, ...]] = {
    "tree": ("all_reduce",),
    "collnetdirect": _REDUCTIONS_AND_GATHERS,
    "collnetchain": ("all_reduce",),
    "nvls": _REDUCTIONS_AND_GATHERS,
    "nvlstree": ("all_reduce",),
    "pat": ("all_gather", "reduce_scatter"),
}
"""What each of NCCL's algorithms but Ring implements (src/graph/tuning.cc, ncclTopoTuneModel).
Until 2.23 NCCL takes another algorithm for the rest without a word; from 2.24 on it refuses."""
_WITH_ALGORITHM = (*_REDUCTIONS_AND_GATHERS, "broadcast", "reduce")
"""Operations that have an algorithm; the others are messages between peers."""


def measure_collectives(
    task: LaunchTask, cell: CollectivesCell, ranks: Ranks, files: RankFiles
) -> CollectivesRank:
    """Measure every operation, dtype and size of the cell. Returns the record of this rank; what a
    backend does not support is listed in it.

    Raises:
        RuntimeError: a collective failed for another reason than missing support.
    """
    sweep = _Sweep(cell, ranks, files, lambda: host_load_meter(task))
    for operation, dtype in itertools.product(cell.operations, cell.dtypes):
        if operation == "pairs":
            continue
        if refusal := _refusal(cell.algorithm if ranks.backend == "nccl" else None, operation):
            sweep.unsupported[f"{operation} {dtype}"] = refusal
            continue
        try:
            sweep.measure(operation, dtype)
        except (RuntimeError, NotImplementedError) as error:
            if not any(sign in str(error).lower() for sign in _UNSUPPORTED):
                raise
            sweep.unsupported[f"{operation} {dtype}"] = _reason(str(error))
    sweep.close_stretch()
    pairs = tuple(sweep.pairs()) if "pairs" in cell.operations else ()
    node: dict[str, Any] = {}
    if ranks.rank == 0 and ranks.device.type == "cuda":
        node = {"driver": driver_facts(), "topology": _topology()}
    return CollectivesRank(
        **dict(rank_identity(task, ranks)),
        samples=tuple(sweep.samples),
        pairs=pairs,
        unsupported=sweep.unsupported,
        **node,
    )


def _refusal(algorithm: str | None, operation: Operation) -> str | None:
    """Why ``operation`` is not called with this NCCL_ALGO; ``None`` where NCCL has it, or is to be
    asked."""
    operations = _OPERATIONS_OF.get((algorithm or "").lower())
    if operations is None or operation not in _WITH_ALGORITHM or operation in operations:
        return None
    return f"NCCL's algorithm {algorithm} implements {', '.join(operations)}, not {operation}"


def _reason(message: str) -> str:
    """The line that says what is missing: NCCL's own stands below torch's, after ``Last
    error:``."""
    lines = [
        line for line in message.splitlines() if any(sign in line.lower() for sign in _UNSUPPORTED)
    ]
    return (lines or [message.partition("\n")[0]])[0].strip()[:200]


def _topology() -> str:
    """The topology matrix of ``nvidia-smi topo -m``; empty where the tool is missing or fails."""
    try:
        done = subprocess.run(
            ["nvidia-smi", "topo", "-m"],  # noqa: S607 - wherever the driver's installation put it
            capture_output=True,
            text=True,
            timeout=_TOPOLOGY_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    if done.returncode == 0:
        return plain.strip()[:_TOPOLOGY_CHARACTERS]
    return ""


class _Sweep:
    """Times the collectives of a cell and collects the samples."""

    def __init__(
        self,
        cell: CollectivesCell,
        ranks: Ranks,
        files: RankFiles,
        new_meter: Callable[[], HostLoadMeter],
    ) -> None:
        self._cell, self._ranks, self._files = cell, ranks, files
        self._clock = make_clock(ranks.device, sync_cuda=False)
        self._new_meter, self._meter = new_meter, new_meter()
        self._first_of_stretch = 0
        self.samples: list[CollectiveSample] = []
        self.unsupported: dict[str, str] = {}

    def measure(self, operation: Operation, dtype: ElementType) -> None:
        """One operation over all sizes; a barrier has one, nothing."""
        if operation == "barrier":
            if dtype == self._cell.dtypes[0]:
                self._barrier(dtype)
            return
        done: set[int] = set()
        for size in self._cell.sizes:
            self._report_progress(f"{operation} {dtype} {format_bytes(size)}")
            collective = COLLECTIVES[operation](self._ranks, dtype, size)
            if collective.payload_bytes in done:
                continue  # sizes below one element of every rank round to the same
            done.add(collective.payload_bytes)
            wrong = self._check(collective)
            collective.clear()
            mean, calls = self._time(collective.call, self._clock)
            wrong = max(wrong, self._check(collective))
            self.samples.append(
                CollectiveSample(
                    operation=operation,
                    dtype=dtype,
                    payload_bytes=collective.payload_bytes,
                    elements=collective.elements,
                    in_place=collective.in_place,
                    mean_seconds=mean,
                    call_seconds=calls,
                    wrong_elements=wrong,
                )
            )
            self._end_long_stretch()

    def close_stretch(self) -> None:
        """Give the samples since the last stretch the load of the host that was read over them."""
        load = self._meter.read()
        stretch = self.samples[self._first_of_stretch :]
        self.samples[self._first_of_stretch :] = [
            one.model_copy(update={"host_load": load}) for one in stretch
        ]
        self._first_of_stretch, self._meter = len(self.samples), self._new_meter()

    def _end_long_stretch(self) -> None:
        """Close a stretch that took long enough, on all ranks after the same sample: their times on
        shared cores are added up."""
        if self._ranks.broadcast_scalar(self._meter.seconds) >= _STRETCH_SECONDS:
            self.close_stretch()

    def pairs(self) -> Iterator[PairSample]:
        """Time messages from each rank to each other, one pair at a time. The receiving rank yields
        the sample."""
        rank, calls = self._ranks.rank, min(_PAIR_CALLS, self._cell.iterations)
        for source, target in itertools.permutations(range(self._ranks.world_size), 2):
            self._report_progress(f"rank {source} to {target}")
            self._ranks.barrier()
            if rank not in (source, target):
                continue
            small = Message(self._ranks, self._cell.min_bytes, source, target)
            large = Message(self._ranks, self._cell.max_bytes, source, target)
            times = []
            for message in (small, large):
                message.fill()
                message.call()
                self._clock.mark()
                for _ in range(calls):
                    message.call()
                self._clock.mark()
                times.append(self._clock.read()[-1] / calls)
            if rank == target:
                yield PairSample(
                    source=source,
                    target=target,
                    payload_bytes=large.payload_bytes,
                    seconds=times[1],
                    latency_seconds=times[0],
                    wrong_elements=small.wrong_elements() + large.wrong_elements(),
                )

    def _barrier(self, dtype: ElementType) -> None:
        """Time barriers with the host clock: they block the host, whatever the device."""
        self._report_progress("barrier")
        mean, calls = self._time(self._wait_for_all, HostClock())
        self.samples.append(
            CollectiveSample(
                operation="barrier",
                dtype=dtype,
                payload_bytes=0,
                elements=0,
                in_place=False,
                mean_seconds=mean,
                call_seconds=calls,
                wrong_elements=None,
            )
        )
        self._end_long_stretch()

    def _wait_for_all(self) -> None:
        if self._ranks.device.type == "cuda":
            dist.barrier(device_ids=[self._ranks.device.index])
            torch.cuda.synchronize(self._ranks.device)
        else:
            dist.barrier()

    def _time(self, call: Callable[[], None], clock: Clock) -> tuple[float, tuple[float, ...]]:
        """Mean seconds of a call in one loop, and the seconds of as many calls that are timed one
        by one."""
        for _ in range(self._cell.warmup):
            call()
        count = self._cell.iterations
        self._ranks.barrier()
        clock.mark()
        for _ in range(count):
            call()
        clock.mark()
        mean = clock.read()[-1] / count
        self._ranks.barrier()
        clock.mark()
        for _ in range(count):
            call()
            clock.mark()
        marks = clock.read()
        return mean, tuple(after - before for before, after in itertools.pairwise(marks))

    def _check(self, collective: Collective) -> int:
        """Number of wrong elements after one call on known values."""
        collective.fill()
        collective.call()
        return collective.wrong_elements()

    def _report_progress(self, what: str) -> None:
        self._files.progress(Progress(phase="measuring", steps=len(self.samples), detail=what))
