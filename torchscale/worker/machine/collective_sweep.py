"""Times the collectives of a cell, size by size, and messages between its pairs of ranks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import timedelta
from time import perf_counter
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from torchscale.config.choices import ElementType, Operation
from torchscale.schema.cells.collectives import CollectiveSample, CollectivesCell, PairSample
from torchscale.schema.launch.progress import Progress
from torchscale.util.units import format_bytes, format_seconds
from torchscale.worker.machine.call_budget import CallBudget, CallCounts
from torchscale.worker.machine.collective_operations import COLLECTIVES, Collective, Message
from torchscale.worker.measure.clock import BatchClock, HostClock, make_clock
from torchscale.worker.measure.host import HostLoadMeter
from torchscale.worker.process_group import Ranks
from torchscale.worker.rank_files import RankFiles

_PAIR_CALLS = 10
"""Maximum number of messages for each of the n(n-1) pairs and both sizes: 8 ranks have 56 pairs."""
_STRETCH_SECONDS = 0.5
"""Linux counts the time of a core in ticks of up to 10 ms: over half a second the share of other
processes is known to 2 %, a fifth of the share that counts as contention. Small messages take
milliseconds, so several share a stretch."""
T = TypeVar("T")

_LONGEST_REFUSAL = 200
"""Characters: torch's message says in its first sentences how much was asked for and is free."""


class _NotMeasured(Exception):
    """A size, and every larger one, is not measured; says why."""


class CollectiveSweep:
    """Times the collectives of a cell and collects the samples."""

    def __init__(
        self,
        cell: CollectivesCell,
        ranks: Ranks,
        files: RankFiles,
        new_meter: Callable[[], HostLoadMeter],
        timeout: timedelta,
    ) -> None:
        self._cell, self._ranks, self._files = cell, ranks, files
        self._timeout = timeout
        self._clock = make_clock(ranks.device, sync_cuda=False)
        self._new_meter, self._meter = new_meter, new_meter()
        self._first_of_stretch = 0
        self._budget = CallBudget(
            CallCounts(cell.warmup, cell.iterations),
            cell.seconds,
            len(cell.operations) * len(cell.dtypes),
        )
        self.samples: list[CollectiveSample] = []
        self.unsupported: dict[str, str] = {}

    def measure(self, operation: Operation, dtype: ElementType) -> None:
        """One operation over all sizes; a barrier has one, nothing."""
        if operation == "barrier":
            if dtype == self._cell.dtypes[0]:
                self._budget.begin_part()
                self._barrier(dtype)
            return
        done: set[int] = set()
        self._budget.begin_part()
        for size in self._cell.sizes:
            what = f"{operation} {dtype} {format_bytes(size)}"
            self._report_progress(what)
            try:
                sample = self._measure_size(operation, dtype, size, done)
            except _NotMeasured as refusal:
                self.unsupported[what] = str(refusal)
                break  # the sizes that follow are larger
            if sample is not None:
                self.samples.append(sample)
                self._end_long_stretch()
        self._free_cached_memory()

    def _measure_size(
        self, operation: Operation, dtype: ElementType, size: int, done: set[int]
    ) -> CollectiveSample | None:
        """One size, with buffers that are free again when it returns; ``None`` where its payload
        is in ``done``: sizes below one element of every rank round to the same.

        Raises:
            _NotMeasured: a rank has not enough memory, or it takes too long; on all ranks.
        """
        collective = self._together(lambda: COLLECTIVES[operation](self._ranks, dtype, size))
        if collective.payload_bytes in done:
            return None
        done.add(collective.payload_bytes)
        started = perf_counter()
        wrong = self._check(collective)
        check_seconds = perf_counter() - started
        collective.clear()
        how_often = self._how_often(
            collective.call, check_seconds, is_largest=size == self._cell.max_bytes
        )
        mean, calls = self._time(collective.call, self._clock, how_often)
        wrong = max(wrong, self._check(collective))
        return CollectiveSample(
            operation=operation,
            dtype=dtype,
            payload_bytes=collective.payload_bytes,
            elements=collective.elements,
            in_place=collective.in_place,
            mean_seconds=mean,
            call_seconds=calls,
            wrong_elements=wrong,
        )

    def _how_often(
        self, call: Callable[[], None], check_seconds: float, *, is_largest: bool
    ) -> CallCounts:
        """Calls at a size, the same on all ranks: as rank 0 finds after one of them.

        Raises:
            _NotMeasured: even the fewest take too long; on all ranks.
        """
        full = CallCounts(self._cell.warmup, self._cell.iterations)
        if not self._budget.is_limited:
            return full
        self._clock.mark()
        call()
        self._clock.mark()
        seconds = self._clock.read()[-1]
        timed = self._budget.timed(seconds, check_seconds, is_largest=is_largest)
        timed = int(self._ranks.broadcast_scalar(float(timed)))
        if not timed:
            raise _NotMeasured(
                f"a call takes {format_seconds(seconds)}, and the sweep {self._cell.seconds:g} s: "
                "--full measures it"
            )
        return full.fewer(timed)

    def _together(self, action: Callable[[], T]) -> T:
        """What ``action``, which waits for no other rank, returns. Where the memory of any rank
        does not suffice, no rank goes on: the others would wait for it in the collective.

        Raises:
            _NotMeasured: that is so; on all ranks.
        """
        results, refusal = [], ""
        try:
            results.append(action())
        except torch.OutOfMemoryError as error:
            refusal = f"rank {self._ranks.rank}: {error}".partition("\n")[0][:_LONGEST_REFUSAL]
        # Nearly always nobody refuses: one sum of a number instead of two exchanges of texts.
        if self._ranks.add_up(torch.tensor([float(bool(refusal))])).item():
            raise _NotMeasured(next(filter(None, self._ranks.gather_objects(refusal))))
        return results[0]

    def _free_cached_memory(self) -> None:
        """Give back what torch's allocator keeps of buffers that are free: the next operation
        starts with small ones, and NCCL allocates past it."""
        if self._ranks.device.type == "cuda":
            torch.cuda.empty_cache()

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
        the sample.

        Each pair has a group of its own, which is left before the next one: NCCL makes a
        communicator for every pair, whose buffers would stay.
        """
        rank, calls = self._ranks.rank, self._messages()
        for pair in itertools.combinations(range(self._ranks.world_size), 2):
            group = dist.new_group(list(pair), timeout=self._timeout, backend=self._ranks.backend)
            for source, target in (pair, pair[::-1]):
                self._report_progress(f"rank {source} to {target}")
                self._ranks.barrier()
                if rank not in pair:
                    continue
                sample = self._measure_pair(source, target, group, calls)
                if rank == target:
                    yield sample
            if rank in pair:
                dist.destroy_process_group(group)

    def _messages(self) -> int:
        """Timed messages of each pair and size: fewer where the ring's of the largest size say that
        they would take longer than the sweep may."""
        most, n = min(_PAIR_CALLS, self._cell.iterations), self._ranks.world_size
        self._budget.begin_part()
        ring = [one.mean_seconds for one in self.samples if one.operation == "send_recv"]
        if not ring:
            return most
        return int(
            self._ranks.broadcast_scalar(float(self._budget.messages(most, ring[-1], n * (n - 1))))
        )

    def _measure_pair(
        self, source: int, target: int, group: ProcessGroup, calls: int
    ) -> PairSample:
        """Messages of one pair, with buffers that are free again when it returns."""
        small = Message(self._ranks, self._cell.min_bytes, source, target, group)
        large = Message(self._ranks, self._cell.max_bytes, source, target, group)
        times = []
        for message in (small, large):
            message.fill()
            message.call()
            self._clock.mark()
            for _ in range(calls):
                message.call()
            self._clock.mark()
            times.append(self._clock.read()[-1] / calls)
        return PairSample(
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
        often = CallCounts(self._cell.warmup, self._cell.iterations)
        mean, calls = self._time(self._wait_for_all, HostClock(), often)
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

    def _time(
        self, call: Callable[[], None], clock: BatchClock, how_often: CallCounts
    ) -> tuple[float, tuple[float, ...]]:
        """Mean seconds of a call in one loop, and the seconds of as many calls that are timed one
        by one."""
        for _ in range(how_often.warmup):
            call()
        count = how_often.timed
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
        self._together(collective.fill)
        collective.call()
        return self._together(collective.wrong_elements)

    def _report_progress(self, what: str) -> None:
        self._files.progress(Progress(phase="measuring", steps=len(self.samples), detail=what))
