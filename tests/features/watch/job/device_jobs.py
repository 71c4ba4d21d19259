"""Jobs whose collectives are kernels of a device, by simple physics, as their collectors would have
written them.

A rank's host issues work ahead of its device. A collective's kernel begins on a rank when the work
before it is done, and ends on all ranks some time after the last one has begun. What torch's flight
recorder holds of it, in torch's own form, is read by the collector's own reader, whose ring is small
and whose lengths come a tenth of a second late.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from tests.features.watch.analysis.jobs import MS, START_NS, Extra, nothing
from tests.features.watch.job.folders import FACTS, USE
from torchscale.analysis.exchanges.events import MomentKind
from torchscale.features.watch.job.job import WatchedJob
from torchscale.worker.watch import clock, rings
from torchscale.worker.watch import recorder as recorders
from torchscale.worker.watch.marks import Marks
from torchscale.worker.watch.recorder import Recorder

Times = NDArray[np.float64]
_RING = 2_000
_DRAIN_MS = 1_000.0
"""Between two readings of the ring."""
_WARM_UP = 10
"""Steps."""
_WATCHDOG_MS = 100.0
"""torch looks so often for what has ended."""


@dataclass(frozen=True)
class Group:
    """A process group: its name, its ranks, and the stream that its kernels run in."""

    name: str
    ranks: tuple[int, ...]
    stream: int = 0


@dataclass
class DeviceJob:
    """Ranks that train; milliseconds.

    Attributes:
        ranks, steps: How many.
        strategy: ``ddp`` (gradients in buckets under the backward pass), ``fsdp`` (parameters are
            gathered before each layer), ``hybrid`` (the same within each half of the ranks, and
            gradients are averaged over both), ``tensor`` (pairs of ranks exchange activations, and
            gradients are averaged over all others).
        slow: What a rank's device takes longer in its backward pass.
        forward: The same in its forward pass.
        late: What a rank's host does before a step.
        data: What it waits for the loader.
        compute, host: Of a step on the device, and to issue it.
        layers: And as many collectives of each kind.
        transfer: Of one collective.
        noise: Standard deviation of each layer's time, as a share of it.
        sync_every: Steps between two at whose end the host waits for its device.
        ahead: Steps that a host may be ahead of its device.
        hosts: The ranks are on so many, and each has a clock of its own.
        sends: Whether ranks send to and receive from each other, as stages of a pipeline do.
        captured: Whether collectives are replayed with a graph, and not recorded.
        is_timed: Whether torch measures the lengths of collectives.
        seed: Of the noise.
    """

    ranks: int
    steps: int = 240
    strategy: str = "ddp"
    slow: Extra = nothing
    forward: Extra = nothing
    late: Extra = nothing
    data: Extra = nothing
    compute: float = 60.0
    host: float = 20.0
    layers: int = 4
    transfer: float = 1.5
    noise: float = 0.03
    sync_every: int = 50
    ahead: int = 2
    hosts: int = 1
    sends: bool = False
    captured: bool = False
    is_timed: bool = True
    seed: int = 0
    marks: list[list[tuple[float, int]]] = field(init=False)
    entries: list[list[tuple[float, float, dict[str, Any]]]] = field(init=False)

    def __post_init__(self) -> None:
        self.marks = [[] for _ in range(self.ranks)]
        self.entries = [[] for _ in range(self.ranks)]
        self._random = np.random.default_rng(self.seed)
        self._host, self._device = np.zeros(self.ranks), np.zeros(self.ranks)
        self._streams = [np.zeros(self.ranks) for _ in range(2)]
        self._numbers: dict[str, int] = {}
        self._ends: list[Times] = []

    @property
    def groups(self) -> list[Group]:
        """Of all ranks; with ``hybrid`` of shards and replicas; with ``tensor`` of pairs, and of all
        first and second ones."""
        everyone = Group("0", tuple(range(self.ranks)))
        if self.strategy == "hybrid":
            half = self.ranks // 2
            shards = [
                Group("sh0", tuple(range(half))),
                Group("sh1", tuple(range(half, self.ranks))),
            ]
            replicas = [Group(f"re{k}", (k, k + half), stream=1) for k in range(half)]
            return [everyone, *shards, *replicas]
        if self.strategy != "tensor":
            return [everyone]
        pairs = [Group(f"tp{first}", (first, first + 1)) for first in range(0, self.ranks, 2)]
        across = [Group(f"dp{k}", tuple(range(k, self.ranks, 2)), stream=1) for k in (0, 1)]
        return [everyone, *pairs, *across]

    def run(self) -> float:
        """Run it; the mean step on the devices."""
        for step in range(self.steps):
            self._step(step)
        ends = np.array(self._ends).mean(axis=1)
        return float(np.diff(ends[_WARM_UP:]).mean())

    def write(self, directory: Path) -> Path:
        """Run it, and write the folder of each rank."""
        self.run()
        for rank in range(self.ranks):
            self._write_rank(directory, rank)
        return directory

    def _step(self, step: int) -> None:
        everyone = range(self.ranks)
        if not step:
            self._note(MomentKind.STEP)
        self._note(MomentKind.DATA)
        self._host += 0.1 + np.array([self.data(rank, step) for rank in everyone])
        self._note(MomentKind.DATA_END)
        self._host += np.array([self.late(rank, step) for rank in everyone])
        forward = np.array([self.forward(rank, step) for rank in everyone])
        slow = np.array([self.slow(rank, step) for rank in everyone])
        for _ in range(self.layers):
            self._gather()
            self._work(self.compute / 3 / self.layers, forward / self.layers)
            if self.strategy == "tensor":
                self._collective("all_reduce", waits=True, prefix="tp")
        self._note(MomentKind.BACKWARD)
        for _ in range(self.layers):
            self._gather()
            self._work(self.compute * 2 / 3 / self.layers, slow / self.layers)
            if self.strategy == "tensor":
                self._collective("all_reduce", waits=True, prefix="tp")
                self._collective("all_reduce", waits=False, prefix="dp")
            elif self.strategy == "hybrid":
                self._collective("_reduce_scatter_base", waits=False, prefix="sh")
                self._collective("all_reduce", waits=False, prefix="re")
            else:
                operation = "_reduce_scatter_base" if self.strategy == "fsdp" else "all_reduce"
                self._collective(operation, waits=False)
            if self.sends:
                self._collective("send 0->1", waits=False, is_p2p=True)
        self._note(MomentKind.BACKWARD_END)
        self._note(MomentKind.OPTIMIZER)
        self._host += 0.3
        self._device = np.maximum.reduce([self._device, self._host, *self._streams]) + 1.0
        self._note(MomentKind.STEP)
        self._ends.append(self._device.copy())
        if step >= self.ahead:
            self._host = np.maximum(self._host, self._ends[step - self.ahead])
        if self.sync_every and step % self.sync_every == self.sync_every - 1:
            self._host = np.maximum(self._host, self._device)

    def _gather(self) -> None:
        if self.strategy in ("fsdp", "hybrid"):
            prefix = "sh" if self.strategy == "hybrid" else ""
            self._collective("_all_gather_base", waits=True, prefix=prefix)

    def _work(self, milliseconds: float, extra: Times) -> None:
        scatter = 1 + self.noise * self._random.standard_normal(self.ranks)
        self._host += self.host / 2 / self.layers
        self._device = np.maximum(self._device, self._host) + milliseconds * scatter + extra

    def _collective(
        self,
        operation: str,
        *,
        waits: bool,
        prefix: str = "",
        is_p2p: bool = False,
    ) -> None:
        """In each group whose name begins so; ``waits``: the device's work waits for it."""
        self._host += 0.02
        for group in self.groups:
            if (prefix and not group.name.startswith(prefix)) or (not prefix and group.name != "0"):
                continue
            rows = list(group.ranks)
            stream = self._streams[group.stream]
            ready = np.maximum(self._device[rows], stream[rows])
            end = ready.max() + self.transfer * (1 + 0.02 * self._random.standard_normal())
            number = self._numbers[group.name] = self._numbers.get(group.name, 0) + 1
            stream[rows] = end
            if waits:
                self._device[rows] = np.maximum(self._device[rows], end)
            if self.captured:
                continue
            for place, rank in enumerate(rows):
                entry = self._entry(rank, group.name, number, operation, is_p2p=is_p2p)
                entry["duration_ms"] = float(end - ready[place])
                self.entries[rank].append((float(self._host[rank]), float(end), entry))

    def _entry(
        self, rank: int, group: str, number: int, operation: str, *, is_p2p: bool
    ) -> dict[str, Any]:
        return {
            "record_id": len(self.entries[rank]),
            "pg_id": 0,
            "process_group": (group, "default_pg" if group == "0" else "undefined"),
            "collective_seq_id": number,
            "p2p_seq_id": number if is_p2p else 0,
            "op_id": number,
            "profiling_name": f"nccl:{operation}",
            "time_created_ns": self._ns(rank, self._host[rank]),
            "input_sizes": [[1_048_576]],
            "input_dtypes": ["Float"],
            "state": "scheduled",
            "retired": False,
            "is_p2p": is_p2p,
        }

    def _note(self, kind: MomentKind) -> None:
        for rank in range(self.ranks):
            self.marks[rank].append((float(self._host[rank]), int(kind)))

    def _host_of(self, rank: int) -> int:
        return rank * self.hosts // self.ranks

    def _ns(self, rank: int, now: float) -> int:
        """On the clock of the rank's host: those of others are seconds off."""
        return START_NS + round(now * MS) + 7_300 * MS * self._host_of(rank)

    def _write_rank(self, directory: Path, rank: int) -> None:
        folder = directory / "ranks" / f"{rank}.0"
        folder.mkdir(parents=True)
        host = self._host_of(rank)
        local = sum(self._host_of(other) == host for other in range(self.ranks))
        known = {
            **FACTS,
            "rank": rank,
            "pid": 1 + rank,
            "world_size": self.ranks,
            "local_world_size": local,
            "host": f"n{host}",
            "backend": "nccl",
            "device": "cuda",
            "is_timed": self.is_timed,
        }
        (folder / "rank.json").write_text(json.dumps(known))
        (folder / "use.json").write_text(json.dumps(USE))
        marks = [(self._ns(rank, time) - START_NS) << 8 | kind for time, kind in self.marks[rank]]
        calls, lengths, names = self._read(rank)
        for name, values in (("marks", marks), ("calls", calls), ("lengths", lengths)):
            (folder / f"{name}-000001.bin").write_bytes(np.array(values, np.int64).tobytes())
        groups = [{"name": group.name, "ranks": list(group.ranks)} for group in self.groups]
        lines = [*groups, *names]
        (folder / "names.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def _read(self, rank: int) -> tuple[list[int], list[int], list[dict[str, Any]]]:
        """What the collector's reader takes from the ring while the job runs, and at its end."""
        entries, calls, lengths = self.entries[rank], list[int](), list[int]()
        end = max((time for time, _ in self.marks[rank]), default=0.0) + 10.0
        state = _Ring(entries)
        with (
            _torch_with(state.dump),
            mock.patch.object(recorders, "timing_asked", lambda: self.is_timed),
            mock.patch.object(clock, "set_by_ns", lambda: 0),
        ):
            reader = Recorder(Marks())
            for now in (*np.arange(_DRAIN_MS, end, _DRAIN_MS), end):
                state.now = float(now)
                at = self._ns(rank, float(now))
                with mock.patch.object(clock, "now_ns", lambda at=at: at):
                    calls += [value for call in reader.drain() for value in call]
                lengths += reader.take_lengths()
        names = [
            {
                "key": number,
                "backend": key.backend,
                "group": key.group,
                "operation": key.operation,
                "bytes": key.size,
                "p2p": key.is_p2p,
            }
            for number, key in enumerate(reader.keys)
        ]
        return calls, lengths, names


class _Ring:
    """torch's ring of one rank at a moment."""

    def __init__(self, entries: Sequence[tuple[float, float, dict[str, Any]]]) -> None:
        self._entries = entries
        self.now = 0.0

    def dump(self, *_: object) -> bytes:
        """Its latest entries; those that have ended have their lengths once torch has looked."""
        called = [one for one in self._entries if one[0] <= self.now][-_RING:]
        return pickle.dumps({"entries": [self._seen(end, entry) for _, end, entry in called]})

    def _seen(self, end: float, entry: dict[str, Any]) -> dict[str, Any]:
        looked = -(-end // _WATCHDOG_MS) * _WATCHDOG_MS
        if looked <= self.now:
            return {**entry, "state": "completed", "retired": True}
        return {name: value for name, value in entry.items() if name != "duration_ms"}


def _torch_with(dump: Callable[..., bytes]) -> Any:
    functions = SimpleNamespace(_dump_nccl_trace=dump)
    torch = SimpleNamespace(
        _C=SimpleNamespace(_distributed_c10d=functions),
        cuda=SimpleNamespace(is_initialized=lambda: False),
    )
    return mock.patch.object(rings, "torch", torch)


def watched(directory: Path) -> WatchedJob:
    """The job in the folder, read to its end and judged."""
    job = WatchedJob(directory, ["train.py"], 1_700_000_000.0)
    job.advance()
    job.judge()
    return job


def named(job: WatchedJob) -> Iterator[tuple[str, int]]:
    """Kind and rank of the findings that name a rank; of one that names a host, its number."""
    for item in job.verdict.findings:
        if item.finding.rank is not None:
            yield item.finding.kind.value, item.finding.rank
        for host in item.finding.hosts:
            yield item.finding.kind.value, int(host.removeprefix("n"))
