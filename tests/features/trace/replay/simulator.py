"""Training over data, tensor and pipeline groups, simulated exactly: what a step takes without a
fault is known.

Every rank runs GPipe's schedule. After each pass of a micro-batch the ranks of a tensor group
reduce; during the last backward pass the copies of a stage reduce their gradients in buckets, on a
stream of its own.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tests.features.trace.readers.builders import host, kernel, kineto, read_rank, step
from torchscale.features.trace.span import Trace

MICRO_BATCHES = 3
FORWARD = 100.0
"""Microseconds of a micro-batch's forward pass; the backward pass takes twice as long."""
LATENCY = 10.0
"""Microseconds of a transfer of no bytes."""
OPTIMIZER = 40.0
BUCKETS = (1 << 20, 8 << 20)
"""Bytes."""
ACTIVATION = 1 << 18
_STREAMS = {"recv": 8, "send": 9, "allreduce": 11}


@dataclass(frozen=True)
class Training:
    """What is simulated.

    Attributes:
        data, tensor, pipeline: Degrees; ranks are numbered by stage, then copy, then tensor rank.
        speed: How much longer a rank computes in a step: (rank, step) → factor.
        stage_work: How much more a stage has to compute.
        micro_batch_work: How much more a micro-batch of a step has to compute: (step, micro-batch)
            → factor.
        micro_batches: That pass through the pipeline in a step.
        buckets: Bytes of the all-reduces of a step.
        joined: Numbers of the buckets that are reduced in one all-reduce each; empty for each by
            itself.
        bandwidth: Bytes in a microsecond.
        loader: Microseconds for which each step waits for data on the first stage.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    speed: Callable[[int, int], float] = lambda rank, number: 1.0
    stage_work: Callable[[int], float] = lambda stage: 1.0
    micro_batch_work: Callable[[int, int], float] = lambda number, micro_batch: 1.0
    micro_batches: int = MICRO_BATCHES
    buckets: tuple[int, ...] = BUCKETS
    joined: tuple[tuple[int, ...], ...] = ()
    bandwidth: float = 50_000.0
    loader: float = 0.0
    steps: int = 8

    @property
    def ranks(self) -> int:
        return self.data * self.tensor * self.pipeline

    def step_seconds(self) -> float:
        """Mean step of the slowest rank, without the first, which has nothing before it."""
        return _Run(self).step_seconds()

    def trace(self) -> Trace:
        """The recording of all ranks."""
        run = _Run(self)
        texts = [kineto(events, rank, self.ranks) for rank, events in enumerate(run.events)]
        ranks = (
            read_rank(io.BytesIO(text.encode()), f"rank{rank}.json")
            for rank, text in enumerate(texts)
        )
        return Trace(tuple(ranks), "torch.profiler")

    def but(self, **changes: Any) -> Training:
        """The same with other values."""
        return replace(self, **changes)


class _Run:
    def __init__(self, training: Training) -> None:
        self.of = training
        self.events: list[list[dict[str, Any]]] = [[] for _ in range(training.ranks)]
        self.now = [0.0] * training.ranks
        self.starts: list[list[float]] = []
        for number in range(training.steps):
            self.starts.append(list(self.now))
            self._step(number)
            for rank, events in enumerate(self.events):
                events.append(
                    step(number, self.starts[-1][rank], self.now[rank] - self.starts[-1][rank])
                )
        self.starts.append(list(self.now))

    def step_seconds(self) -> float:
        pairs = list(zip(self.starts[1:-1], self.starts[2:], strict=True))
        return (
            sum(max(b - a for a, b in zip(*pair, strict=True)) for pair in pairs)
            / len(pairs)
            * 1e-6
        )

    def _rank(self, stage: int, copy: int, tensor: int) -> int:
        return (stage * self.of.data + copy) * self.of.tensor + tensor

    def _step(self, number: int) -> None:
        of = self.of
        if of.loader:
            for rank in range(of.data * of.tensor):
                name = "enumerate(DataLoader)#x.__next__"
                self.events[rank].append(host("user_annotation", name, self.now[rank], of.loader))
                self.now[rank] += of.loader
        ready: dict[tuple[int, int], list[float]] = defaultdict(list)
        for backward in (False, True):
            sent: dict[tuple[int, int], float] = {}
            for stage in range(of.pipeline)[:: -1 if backward else 1]:
                for copy in range(of.data):
                    for micro_batch in range(of.micro_batches):
                        self._pass(
                            number, (stage, copy, micro_batch), sent, ready, backward=backward
                        )
        self._reduce_gradients(ready)

    def _pass(
        self,
        number: int,
        at: tuple[int, int, int],
        sent: dict[tuple[int, int], float],
        ready: dict[tuple[int, int], list[float]],
        *,
        backward: bool,
    ) -> None:
        of, (stage, copy, micro_batch) = self.of, at
        members = [self._rank(stage, copy, tensor) for tensor in range(of.tensor)]
        before, after = (stage + 1, stage - 1) if backward else (stage - 1, stage + 1)
        for tensor, rank in enumerate(members):
            chain = [self._rank(each, copy, tensor) for each in range(of.pipeline)]
            if 0 <= before < of.pipeline:
                arrived = max(self.now[rank], sent[chain[before], micro_batch]) + self._transfer(
                    ACTIVATION
                )
                self._collective(
                    "recv", rank, self.now[rank], arrived, chain, ACTIVATION, partner=chain[before]
                )
                self.now[rank] = arrived
            work = (
                FORWARD
                * of.speed(rank, number)
                * of.stage_work(stage)
                * of.micro_batch_work(number, micro_batch)
            )
            parts = len(of.buckets)
            for part in range(parts if backward else 1):
                length = work * 2 / parts if backward else work
                self.events[rank].append(kernel("gemm", self.now[rank], length))
                self.now[rank] += length
                if backward and micro_batch == of.micro_batches - 1:
                    ready[rank, part].append(self.now[rank])
        if of.tensor > 1:
            end = max(self.now[rank] for rank in members) + self._transfer(ACTIVATION)
            for rank in members:
                self._collective("allreduce", rank, self.now[rank], end, members, ACTIVATION)
                self.now[rank] = end
        for tensor, rank in enumerate(members):
            if 0 <= after < of.pipeline:
                chain = [self._rank(each, copy, tensor) for each in range(of.pipeline)]
                end = self.now[rank] + self._transfer(ACTIVATION)
                self._collective(
                    "send", rank, self.now[rank], end, chain, ACTIVATION, partner=chain[after]
                )
                sent[rank, micro_batch] = self.now[rank]

    def _reduce_gradients(self, ready: dict[tuple[int, int], list[float]]) -> None:
        of = self.of
        for stage in range(of.pipeline):
            for tensor in range(of.tensor):
                members = [self._rank(stage, copy, tensor) for copy in range(of.data)]
                free = 0.0
                parts = of.joined or tuple((bucket,) for bucket in range(len(of.buckets)))
                for part in parts if of.data > 1 else ():
                    size = sum(of.buckets[bucket] for bucket in part)
                    starts = [max(ready[rank, part[-1]][0], free) for rank in members]
                    free = max(starts) + self._transfer(size)
                    for rank, start in zip(members, starts, strict=True):
                        self._collective("allreduce", rank, start, free, members, size, stream=10)
                for rank in members:
                    self.now[rank] = max(self.now[rank], free)
                    self.events[rank].append(kernel("adam", self.now[rank], OPTIMIZER))
                    self.now[rank] += OPTIMIZER

    def _transfer(self, size: int) -> float:
        return LATENCY + size / self.of.bandwidth

    def _collective(
        self,
        op: str,
        rank: int,
        start: float,
        end: float,
        members: list[int],
        size: int,
        *,
        partner: int | None = None,
        stream: int | None = None,
    ) -> None:
        described: dict[str, Any] = {
            "Collective name": op,
            "Process Group Name": f"{'reduce' if partner is None else 'pipe'}{members[0]}",
            "Process Group Ranks": str(members),
            "dtype": "Byte",
            "In msg nelems": size,
        }
        if partner is not None:
            described["Dst Rank" if op == "send" else "Src Rank"] = partner
        name = "ncclDevKernel_AllReduce_Sum_f32" if op == "allreduce" else "ncclDevKernel_SendRecv"
        self.events[rank].append(
            kernel(name, start, end - start, stream=stream or _STREAMS[op], **described)
        )
