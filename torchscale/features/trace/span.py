"""What a profiler recorded, whoever recorded it: spans of time per rank, as columns.

Times are nanoseconds since an origin that all ranks of a :class:`Trace` share.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Nanoseconds = NDArray[np.int64]
SEND_RECV = "send_recv"
"""The operation of sends and receives, which are no collectives: each concerns two ranks."""
GROUPED_SEND_RECV = "grouped_send_recv"
"""Several sends and receives in one group, of which the recording does not tell whether they are an
all-to-all or the messages of a pipeline."""
UNRECORDED_LAUNCH = "(launched before the recording)"
"""The group of NCCL's kernels whose launch was not recorded, where the groups of others are
known."""


class SpanKind(IntEnum):
    """What happened in a span."""

    COMPUTE = 0
    """A kernel on the device that is neither communication nor a copy."""
    COPY = 1
    """A copy or a fill by the device."""
    OPERATOR = 2
    """An operator on the host; on CPU those that contain no communication are the compute."""
    LAUNCH = 3
    """A host call that hands work to the device."""
    HOST_SYNC = 4
    """A host call that waits for the device."""
    INPUT = 5
    """Waiting for the data loader."""
    READBACK = 6
    """An operator that reads a value back from the device (``.item()``)."""
    PAUSE = 7
    """Garbage collection."""


class SpanCopyKind(IntEnum):
    """The memories between which a :attr:`SpanKind.COPY` went."""

    OTHER = 0
    HOST_TO_DEVICE = 1
    HOST_TO_DEVICE_PAGEABLE = 2
    DEVICE_TO_HOST = 3
    DEVICE_TO_HOST_PAGEABLE = 4
    FILL = 5
    WITHIN_DEVICE = 6
    BETWEEN_DEVICES = 7
    HOST_TO_DEVICE_UNKNOWN = 8
    """Copy from memory of the host, of which it is not known whether it is pinned."""
    DEVICE_TO_HOST_UNKNOWN = 9


@dataclass(frozen=True)
class Spans:
    """Columns of equal length, one entry a span, in no order.

    Attributes:
        start, end: Nanoseconds, int64.
        kind: :class:`SpanKind`, int8.
        name: Index into the rank's ``names``, int32.
        lane: Stream or thread, int64.
        link: Correlates a launch with what it launched, int64; 0 for none.
        detail: :class:`SpanCopyKind` of a copy, int8.
        size: Bytes of a copy, int64; -1 where the trace does not say, 0 for other spans.
    """

    start: Nanoseconds
    end: Nanoseconds
    kind: NDArray[np.int8]
    name: NDArray[np.int32]
    lane: NDArray[np.int64]
    link: NDArray[np.int64]
    detail: NDArray[np.int8]
    size: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)

    @property
    def memory_bytes(self) -> int:
        """Bytes of the columns."""
        return sum(getattr(self, field.name).nbytes for field in fields(Spans))

    def only(self, chosen: NDArray[np.bool_]) -> Spans:
        """The spans that are chosen."""
        return Spans(
            self.start[chosen],
            self.end[chosen],
            self.kind[chosen],
            self.name[chosen],
            self.lane[chosen],
            self.link[chosen],
            self.detail[chosen],
            self.size[chosen],
        )

    @property
    def between_devices(self) -> NDArray[np.bool_]:
        """Which are copies from one device to another."""
        return np.asarray(self.of(SpanKind.COPY) & (self.detail == SpanCopyKind.BETWEEN_DEVICES))

    def of(self, *kinds: SpanKind) -> NDArray[np.bool_]:
        """Which spans are of these kinds."""
        chosen = np.zeros(len(self.kind), dtype=bool)
        for kind in kinds:
            chosen |= self.kind == kind
        return chosen


@dataclass(frozen=True)
class CollectiveSpans:
    """Communication of one rank, in the order of its start; columns of equal length.

    Attributes:
        start: When the rank arrived: the kernel's start (NCCL), or the call of the operation
            (gloo).
        end: When it was done here.
        op: Index into ``ops``, int32.
        group: Index into ``groups``, int32.
        payload_bytes: Payload as nccl-tests counts it; -1 where the trace does not say.
        sequence: Number within the group that all its ranks share; -1 where the trace has none.
        lane: Stream, or the thread that called it.
        step: Number of the recorded step in which it was launched; -1 where that is not known or in
            none.
        ops: Names: ``all_reduce``, ``broadcast`` …
        groups: Names of process groups or communicators; one ``""`` where the trace has none.
        peer: Rank that a ``send_recv`` goes to or comes from, int32; -1 where the trace does not
            say.
        direction: 1 for a send, -1 for a receive, 0 for both at once or where the trace does not
            say, int8.
        began: When it began to run here: the kernel's start (NCCL), or when a thread of gloo took
            it up; nanoseconds.
        queue: What it runs on, one after the other: the stream, or gloo's thread; -1 where nothing
            holds it up.
        link: Correlates it with the host call that launched it; 0 for none.
        peers_within_group: Whether ``peer`` counts the ranks of its group, as gloo's calls do, and
            not all ranks.
    """

    start: Nanoseconds
    end: Nanoseconds
    op: NDArray[np.int32]
    group: NDArray[np.int32]
    payload_bytes: NDArray[np.int64]
    sequence: NDArray[np.int64]
    lane: NDArray[np.int64]
    step: NDArray[np.int64]
    ops: tuple[str, ...]
    groups: tuple[str, ...]
    peer: NDArray[np.int32]
    direction: NDArray[np.int8]
    began: Nanoseconds
    queue: NDArray[np.int64]
    link: NDArray[np.int64]
    peers_within_group: bool = False

    def __len__(self) -> int:
        return len(self.start)

    @property
    def point_to_point(self) -> NDArray[np.bool_]:
        """Which are sends and receives."""
        return self.are(SEND_RECV)

    def are(self, op: str) -> NDArray[np.bool_]:
        """Which are of this operation."""
        if op not in self.ops:
            return np.zeros(len(self), dtype=bool)
        return np.asarray(self.op == self.ops.index(op))


@dataclass(frozen=True)
class Steps:
    """The recorded training steps of a rank, in order: host times, and the steps' numbers."""

    start: Nanoseconds
    end: Nanoseconds
    number: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)


@dataclass(frozen=True)
class CpuUse:
    """What a rank may compute on.

    Attributes:
        threads: Number of threads that work on one operator.
        cpus: Logical CPUs of the host that the process may run on.
    """

    threads: int
    cpus: frozenset[int]


@dataclass(frozen=True)
class RankTrace:
    """Everything recorded of one rank.

    Attributes:
        rank: Global rank of the process, or its place among the recorded processes where the trace
            has none.
        host: Name of its host; ``None`` where the trace does not say.
        pid: PID of the process.
        on_device: Whether there is a device timeline; else the host's operators are the work.
        backend: ``nccl``, ``gloo`` …; ``None`` where the trace does not say.
        world_size: ``None`` where the trace does not say.
        source: The file it came from.
        names: What ``spans.name`` points into.
        peak_bytes: Most that was allocated on the rank's device at once; ``None`` where it
            was not recorded.
        cpu_use: ``None`` where the trace does not say.
        notes: What of the file was not understood.
        is_of_merged_file: Whether its number is its place among the ranks of one file.
    """

    rank: int
    host: str | None
    pid: int
    on_device: bool
    backend: str | None
    world_size: int | None
    source: str
    names: tuple[str, ...]
    spans: Spans
    collectives: CollectiveSpans
    steps: Steps
    peak_bytes: int | None = None
    cpu_use: CpuUse | None = None
    notes: tuple[str, ...] = ()
    is_of_merged_file: bool = False


@dataclass(frozen=True)
class Trace:
    """The ranks of one run, by rank.

    Attributes:
        ranks: Those that were read.
        recorder: ``nsys`` or ``torch.profiler``.
        notes: What a reader of the figures should know of the recording.
        absent: How many ranks were recorded and not read, because others were asked for.
    """

    ranks: tuple[RankTrace, ...]
    recorder: str
    notes: tuple[str, ...] = field(default=())
    absent: int = 0
