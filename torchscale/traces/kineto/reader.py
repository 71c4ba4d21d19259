"""A trace of ``torch.profiler`` becomes one rank's trace."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import BinaryIO

from torchscale.errors import TraceError
from torchscale.schema.profiles.span import CpuUse, RankTrace
from torchscale.traces.kineto.events import ColumnBuilder
from torchscale.traces.kineto.stream import EVENTS_KEY, DistributedInfo, EventStream
from torchscale.traces.soundness import MAX_NS

_RANK_IN_NAME = re.compile(r"(?:rank|worker|^r)[-_.]?(\d{1,6})", re.IGNORECASE)


UNNAMED = -1
"""The rank of a trace that does not say of which rank it is, as those of programs with a single
process."""


def is_kineto(beginning: bytes) -> bool:
    """Whether a file that starts like this is a Chrome trace."""
    return EVENTS_KEY.search(beginning) is not None or (
        beginning.lstrip()[:1] == b"[" and re.search(rb'"ph"\s*:', beginning) is not None
    )


def read_kineto(file: BinaryIO, source: str, *, with_shapes: bool = False) -> RankTrace:
    """One rank's trace.

    Args:
        file: The JSON, already decompressed.
        source: What to call it; where the trace has no rank, the number in this name is taken
            (``rank3``), and without one the rank is :data:`UNNAMED`.
        with_shapes: Name operators with the shapes of their inputs.

    Raises:
        TraceError: it is not a Chrome trace, is cut off, or an event has another form than
            torch.profiler writes.
    """
    builder = ColumnBuilder(with_shapes=with_shapes)
    stream = EventStream(file, source)
    for events in stream.events():
        builder.add(events)
        if builder.excess:
            raise TraceError(
                f"{source}: {builder.excess}; no recording of training steps has so many",
                hint="record fewer steps",
            )
    header = stream.header
    info, cpus = header.distributed or DistributedInfo(), header.cpu_info
    rank = info.rank
    if rank is None:
        rank = rank_in_name(source)
    if not 0 <= header.base_nanoseconds < MAX_NS:
        raise TraceError(
            f"{source}: baseTimeNanoseconds is no time of a recording",
            hint="record it again, or leave this file out",
        )
    columns = builder.finish(header.base_nanoseconds)
    return RankTrace(
        rank=UNNAMED if rank is None else rank,
        host=header.host,
        pid=columns.pid,
        on_device=columns.on_device,
        backend=info.backend,
        world_size=info.world_size,
        source=source,
        names=columns.names,
        spans=columns.spans,
        collectives=columns.collectives,
        steps=columns.steps,
        peak_bytes=columns.peak_bytes,
        cpu_use=None if cpus is None else CpuUse(cpus.threads, frozenset(cpus.cpus)),
    )


def rank_in_name(source: str) -> int | None:
    """The rank in the name of a trace; ``None`` where there is none."""
    match = _RANK_IN_NAME.search(PurePath(source).name)
    if match is None:
        return None
    return int(match[1])
