"""A sweep of collectives, as one rank lives it: every operation, dtype and size, checked before and after."""

from __future__ import annotations

import itertools
import re
import subprocess
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist

from torchscale.schema.ceilings import ElementType, Operation
from torchscale.schema.collectives import CollectiveSample, CollectivesCell, CollectivesRank, PairSample
from torchscale.schema.progress import Progress
from torchscale.schema.task import LaunchTask
from torchscale.units import format_bytes
from torchscale.worker.exchanges import EXCHANGES, Exchange, Message
from torchscale.worker.measure.clock import Clock, HostClock, make_clock
from torchscale.worker.outbox import Outbox
from torchscale.worker.place import place_of
from torchscale.worker.probe_gpu import driver_facts
from torchscale.worker.ranks import Ranks

_PAIR_CALLS = 10
_TOPOLOGY_SECONDS = 10.0
_TOPOLOGY_CHARACTERS = 8000
_UNSUPPORTED = ("not support", "unsupported", "not implemented", "no backend type")


def measure_collectives(task: LaunchTask, cell: CollectivesCell, ranks: Ranks, outbox: Outbox) -> CollectivesRank:
    """Time the whole sweep; the record of this rank."""
    sweep = _Sweep(cell, ranks, outbox)
    for operation, dtype in itertools.product(cell.operations, cell.dtypes):
        if operation == "pairs":
            continue
        try:
            sweep.measure(operation, dtype)
        except (RuntimeError, NotImplementedError) as error:
            if not any(sign in str(error).lower() for sign in _UNSUPPORTED):
                raise
            sweep.unsupported[f"{operation} {dtype}"] = str(error).partition("\n")[0][:200]
    pairs = tuple(sweep.pairs()) if "pairs" in cell.operations else ()
    asks_driver = ranks.rank == 0 and ranks.device.type == "cuda"
    return CollectivesRank(
        **dict(place_of(task, ranks)),
        samples=tuple(sweep.samples),
        pairs=pairs,
        unsupported=sweep.unsupported,
        driver=driver_facts() if asks_driver else None,
        topology=_topology() if asks_driver else "",
    )


def _topology() -> str:
    """How the devices are connected, as the driver's own tool draws it; empty where it is not there."""
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
    return plain.strip()[:_TOPOLOGY_CHARACTERS] if done.returncode == 0 else ""


class _Sweep:
    """What has been measured so far."""

    def __init__(self, cell: CollectivesCell, ranks: Ranks, outbox: Outbox) -> None:
        self._cell, self._ranks, self._outbox = cell, ranks, outbox
        self._clock = make_clock(ranks.device, sync_cuda=False)
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
            self._say(f"{operation} {dtype} {format_bytes(size)}")
            exchange = EXCHANGES[operation](self._ranks, dtype, size)
            if exchange.payload_bytes in done:
                continue  # sizes below one element of every rank round to the same
            done.add(exchange.payload_bytes)
            wrong = self._check(exchange)
            exchange.rest()
            mean, calls = self._time(exchange.call, self._clock)
            wrong = max(wrong, self._check(exchange))
            self.samples.append(
                CollectiveSample(
                    operation=operation,
                    dtype=dtype,
                    payload_bytes=exchange.payload_bytes,
                    elements=exchange.elements,
                    in_place=exchange.in_place,
                    mean_seconds=mean,
                    call_seconds=calls,
                    wrong_elements=wrong,
                )
            )

    def pairs(self) -> Iterator[PairSample]:
        """Messages between every two ranks, while all others wait; told by who receives."""
        rank, calls = self._ranks.rank, min(_PAIR_CALLS, self._cell.iterations)
        for source, target in itertools.permutations(range(self._ranks.world_size), 2):
            self._say(f"rank {source} to {target}")
            self._ranks.align()
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
        """A barrier holds the host, whatever the device."""
        self._say("barrier")
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

    def _wait_for_all(self) -> None:
        if self._ranks.device.type == "cuda":
            dist.barrier(device_ids=[self._ranks.device.index])
            torch.cuda.synchronize(self._ranks.device)
        else:
            dist.barrier()

    def _time(self, call: Callable[[], None], clock: Clock) -> tuple[float, tuple[float, ...]]:
        """Mean of one loop of calls, then the seconds of as many timed one by one."""
        for _ in range(self._cell.warmup):
            call()
        count = self._cell.iterations
        self._ranks.align()
        clock.mark()
        for _ in range(count):
            call()
        clock.mark()
        mean = clock.read()[-1] / count
        self._ranks.align()
        clock.mark()
        for _ in range(count):
            call()
            clock.mark()
        marks = clock.read()
        return mean, tuple(after - before for before, after in itertools.pairwise(marks))

    def _check(self, exchange: Exchange) -> int:
        """Run it once on numbers that tell where they come from."""
        exchange.fill()
        exchange.call()
        return exchange.wrong_elements()

    def _say(self, what: str) -> None:
        self._outbox.progress(Progress(phase="measuring", steps=len(self.samples), detail=what))
