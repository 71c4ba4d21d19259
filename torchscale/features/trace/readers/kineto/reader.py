"""A trace of ``torch.profiler`` becomes the traces of its ranks: mostly one."""

from __future__ import annotations

import codecs
import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import BinaryIO

from torchscale.errors import TraceError
from torchscale.features.trace.readers.kineto.categories import OLD_NOTE, may_be_of_device
from torchscale.features.trace.readers.kineto.events import ColumnBuilder
from torchscale.features.trace.readers.kineto.forms import DistributedInfo, Header
from torchscale.features.trace.readers.kineto.processes import ranks_of
from torchscale.features.trace.readers.kineto.rank_columns import EventColumns
from torchscale.features.trace.readers.kineto.stream import EVENTS_KEY, EventStream
from torchscale.features.trace.readers.soundness import MAX_NS
from torchscale.features.trace.span import CpuUse, RankTrace
from torchscale.util.lenient import counted

_HINT = "record it again, or leave this file out"
_MAX_SHOWN, _MAX_NAME = 16, 60
_RANK_IN_NAME = re.compile(r"(?:rank|worker|^r)[-_.]?(\d{1,6})", re.IGNORECASE)


UNNAMED = -1
"""The rank of a trace that does not say of which rank it is, as those of programs with a single
process."""


def is_kineto(beginning: bytes) -> bool:
    """Whether a file that starts like this is a Chrome trace."""
    beginning = beginning.removeprefix(codecs.BOM_UTF8)
    return EVENTS_KEY.search(beginning) is not None or (
        beginning.lstrip()[:1] == b"[" and re.search(rb'"ph"\s*:', beginning) is not None
    )


def read_kineto(file: BinaryIO, source: str, *, with_shapes: bool = False) -> list[RankTrace]:
    """The ranks of a trace: one, unless several were merged into it, or a process used several
    devices.

    Args:
        file: The JSON, already decompressed.
        source: What to call it; where the trace has no rank, the number in this name is taken
            (``rank3``), and without one the rank is :data:`UNNAMED`.
        with_shapes: Name operators with the shapes of their inputs.

    Raises:
        TraceError: it is not a Chrome trace, is cut off, or what an analysis rests on is not in it:
            times, ranks, events of the device.
    """
    builder = ColumnBuilder(with_shapes=with_shapes)
    stream = EventStream(file, source)
    for events in stream.events():
        builder.add(events)
        if builder.problem:
            raise TraceError(f"{source}: {builder.problem}", hint=_HINT)
    header = stream.header
    if not 0 <= header.base_nanoseconds < MAX_NS:
        raise TraceError(f"{source}: baseTimeNanoseconds is no time of a recording", hint=_HINT)
    _check_devices(builder, source)
    _check_processes(builder, source)
    notes = _notes(builder, stream, source)
    columns = builder.finish(header.base_nanoseconds)
    _check_scope(columns, header, source)
    return _traces(columns, header, source, notes)


def _traces(
    columns: Sequence[EventColumns], header: Header, source: str, notes: tuple[str, ...]
) -> list[RankTrace]:
    info, cpus = header.distributed or DistributedInfo(), header.cpu_info
    numbers, world_size = [_rank(info, source)], info.world_size
    if len(columns) > 1:
        numbers = _numbered(columns)
        world_size = max(len(columns), max(numbers) + 1, info.world_size or 0)
        notes = (*notes, _about_ranks(columns, numbers, source))
    return [
        RankTrace(
            rank=number,
            host=header.host,
            pid=one.pid,
            on_device=one.on_device,
            backend=info.backend,
            world_size=world_size,
            source=source,
            names=one.names,
            spans=one.spans,
            collectives=one.collectives,
            steps=one.steps,
            peak_bytes=one.peak_bytes,
            cpu_use=None if cpus is None else CpuUse(cpus.threads, frozenset(cpus.cpus)),
            notes=notes,
            is_of_merged_file=len(columns) > 1,
        )
        for number, one in zip(numbers, columns, strict=True)
    ]


def _rank(info: DistributedInfo, source: str) -> int:
    if info.rank is not None:
        return info.rank
    named = rank_in_name(source)
    return UNNAMED if named is None else named


def _numbered(columns: Sequence[EventColumns]) -> list[int]:
    """Ranks of a file of several: by what it calls them, or by the device of each."""
    if columns[0].device is not None:
        return list(range(len(columns)))
    return ranks_of([one.label for one in columns])


def _about_ranks(columns: Sequence[EventColumns], numbers: Sequence[int], source: str) -> str:
    names = [one.label or f"device {one.device}" for one in columns]
    pairs = sorted(zip(numbers, names, strict=True))
    told = ", ".join(f"{name} is rank {number}" for number, name in pairs[:_MAX_SHOWN])
    if len(pairs) > _MAX_SHOWN:
        told += " …"
    return f"{source}: {len(columns)} ranks in one file: {told}"


def _notes(builder: ColumnBuilder, stream: EventStream, source: str) -> tuple[str, ...]:
    """What was not understood, once for all events."""
    notes = []
    if builder.is_old:
        notes.append(f"{source}: {OLD_NOTE}")
    categories = +builder.unread
    if categories:
        notes.append(f"{source}: not read: events of {counted(categories)}")
    if stream.unread:
        notes.append(
            f"{source}: of another type than torch writes, taken as unknown: "
            f"{counted(stream.unread)}"
        )
    return tuple(notes)


def _check_devices(builder: ColumnBuilder, source: str) -> None:
    """Refuse a recording whose device worked while none of its work is read: what operators of the
    host take would be called compute."""
    unread = +builder.unread
    is_device = builder.has_launches or any(map(may_be_of_device, unread))
    if builder.on_device or not is_device:
        return
    if unread:
        raise TraceError(
            f"{source}: its device events are of kinds that are not read: {counted(unread)}",
            hint="expected: kernel, gpu_memcpy, gpu_memset, mtia_ccp_events; shares of the host's "
            "operators would not be those of the device",
        )
    raise TraceError(
        f"{source}: the host launched work on a device, and no event of the device is in it",
        hint="record again with the activity of the device (ProfilerActivity.CUDA, XPU …); it is "
        "also missing where another profiler uses the device",
    )


def _check_processes(builder: ColumnBuilder, source: str) -> None:
    pids = builder.pids
    if pids:
        shown = ", ".join(str(pid)[:_MAX_NAME] for pid in pids[:_MAX_SHOWN])
        raise TraceError(
            f"{source}: events of {len(pids)} processes ({shown}) in one file, and nothing says "
            "which rank each is",
            hint="give the file of each rank; or put [rank0], [rank1] … before the process (pid) "
            "of each event",
        )


def _check_scope(columns: Sequence[EventColumns], header: Header, source: str) -> None:
    devices = [one.device for one in columns if one.device is not None]
    info = header.distributed or DistributedInfo()
    labels = {one.label for one in columns}
    if devices and ((info.world_size or 1) > 1 or len(labels) > 1):
        raise TraceError(
            f"{source}: kernels of {len(devices)} devices ({', '.join(map(str, devices))}) in the "
            "recording of a rank of several",
            hint="a rank has one device: record each process by itself",
        )


def rank_in_name(source: str) -> int | None:
    """The rank in the name of a trace; ``None`` where there is none."""
    match = _RANK_IN_NAME.search(PurePath(source).name)
    if match is None:
        return None
    return int(match[1])
