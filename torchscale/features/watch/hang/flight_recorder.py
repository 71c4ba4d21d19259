"""Reads what torch's flight recorders dump: JSON, or pickles that hold nothing but plain values.

Format: ``FlightRecorder.hpp`` of torch (versions 2.0 to 2.10 of the format). Differences between
backends are evened out: gloo never sets ``state`` and lists its groups under an empty name, and of
backends that torch records by hooks some never say when a call completed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from torchscale.catalog.backends import is_nccl
from torchscale.errors import TraceError
from torchscale.features.watch.hang.collective_log import (
    COMPLETED,
    DEFAULT_GROUP_DESCRIPTION,
    CollectiveCall,
    CollectiveLog,
    ProcessGroup,
)
from torchscale.features.watch.hang.recorder_dump.form import (
    MAX_NAME,
    DumpEntry,
    RecorderDump,
    check_size,
    decode_dump,
)
from torchscale.features.watch.hang.recorder_dump.plain_pickle import plain_pickle
from torchscale.schema.launch.hang import StackFrame
from torchscale.util.text import one_line

MAX_DUMP_BYTES = 64 << 20
"""torch keeps 2,000 entries by default: 2 MB of JSON, some 10 MB of pickle with stacks."""
_MAX_DIMENSIONS = 64
"""Maximum number of dimensions of a tensor in torch."""
_MAX_FRAMES = 100
_MAX_NUMBER = 1 << 62
"""Larger numbers, and negative ones, are of no recorder."""
_GLOO = frozenset({"gloo", ""})
"""Backends that retire what has completed and set no state; also those that give no name."""
_HOOKED = {"allreduce": "all_reduce", "allgather": "all_gather", "alltoall": "all_to_all"}
"""Names of operations that the hooks of torch 2.14 write → those of all others."""
_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
"""``c10::toString(ScalarType)`` → torch's name; others, as ``Float8_e4m3fn``, differ in case
alone."""


def read_flight_recorder(data: bytes) -> CollectiveLog:
    """The log in ``data``, a dump as torch writes it: JSON or a pickle. Nothing in a pickle is
    called or imported.

    Args:
        data: Content of the file.

    Raises:
        TraceError: it is no dump of the flight recorder, or larger than any.
    """
    if len(data) > MAX_DUMP_BYTES:
        raise TraceError(f"larger than {MAX_DUMP_BYTES >> 20} MiB, which no flight recorder writes")
    content: object
    if data[:1] == b"\x80":
        content = plain_pickle(data)
    else:
        try:
            content = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
            raise TraceError(f"neither JSON nor a pickle: {error}") from error
    return collective_log(content)


def collective_log(content: object, since: float = 0.0) -> CollectiveLog:
    """The log in a dump that was decoded already, of entries that were made ``since`` a moment, in
    seconds since the epoch; errors as for :func:`read_flight_recorder`."""
    if not isinstance(content, Mapping) or "version" not in content:
        raise TraceError("no dump of torch's flight recorder: it has no 'version'")
    check_size(content)
    unread = Counter[str]()
    try:
        dump = decode_dump(content, unread)
    except (ValueError, RecursionError) as error:
        raise TraceError(f"no dump of torch's flight recorder: {error}") from error
    newest = _newest_groups(dump.entries)
    kept = [
        entry
        for entry in dump.entries
        if entry.time_created_ns >= since * 1e9
        and newest[_owner(entry)] == entry.pg_id
        and 0 <= entry.collective_seq_id < _MAX_NUMBER
    ]
    reaches_back = not kept or kept[0] is not dump.entries[0] or kept[0].record_id == 0
    untold = _untold(kept)
    used = frozenset(_backend(entry) for entry in kept)
    return CollectiveLog(
        tuple(_call(entry, is_told=_backend(entry) not in untold) for entry in kept),
        _groups(dump),
        truncated=frozenset() if reaches_back else used,
        untold=untold,
        tells_starts=_tells_starts(kept),
        unread=unread,
    )


def merged(logs: Mapping[str, CollectiveLog]) -> CollectiveLog:
    """The logs of all recorders of a rank, by their names, as one in the order of time."""
    groups: dict[str, ProcessGroup] = {}
    for log in logs.values():
        for name, group in log.groups.items():
            if name not in groups or not groups[name].ranks:
                groups[name] = group
    calls = sorted(
        (call for log in logs.values() for call in log.calls), key=lambda call: call.created_ns
    )
    return CollectiveLog(
        tuple(calls),
        groups,
        frozenset().union(*(log.truncated for log in logs.values())),
        frozenset().union(*(log.untold for log in logs.values())),
        {name: len(log.calls) for name, log in logs.items()},
        {backend: told for log in logs.values() for backend, told in log.tells_starts.items()},
    )


def _backend(entry: DumpEntry) -> str:
    """``nccl`` of ``nccl:all_reduce``; empty without."""
    backend, separator, _ = entry.profiling_name.partition(":")
    if not separator:
        return ""
    return backend


def _owner(entry: DumpEntry) -> tuple[str, str]:
    """Whose numbers an entry has: each backend of a group counts by itself."""
    return entry.process_group[0], _backend(entry)


def _newest_groups(entries: list[DumpEntry]) -> dict[tuple[str, str], int]:
    """Group and backend → its latest id: a process that joins a group again under the same name
    counts from 1 again."""
    newest: dict[tuple[str, str], int] = {}
    for entry in entries:
        owner = _owner(entry)
        newest[owner] = max(entry.pg_id, newest.get(owner, entry.pg_id))
    return newest


def _untold(entries: Sequence[DumpEntry]) -> frozenset[str]:
    """Backends of which nobody tells when a call completed: torch's hooks retire each call as it is
    issued then, and leave its state."""
    seen = {_backend(entry) for entry in entries}
    told = {
        _backend(entry)
        for entry in entries
        if not entry.retired or entry.state in ("started", "completed")
    }
    return frozenset(name for name in seen - told - _GLOO if not is_nccl(name))


def _tells_starts(entries: Sequence[DumpEntry]) -> dict[str, bool]:
    """Backend → whether completed calls say when the device began them: NCCL's do where torch
    measures times, and those of some backends never do."""
    told: dict[str, bool] = {}
    for entry in entries:
        backend, started = _backend(entry), entry.time_discovered_started_ns
        if entry.state == COMPLETED and started is not msgspec.UNSET:
            told[backend] = told.get(backend, False) or bool(started)
    return told


def _call(entry: DumpEntry, *, is_told: bool) -> CollectiveCall:
    backend, separator, operation = entry.profiling_name.partition(":")
    if not separator:
        backend, operation = "", entry.profiling_name
    sequence, state = entry.collective_seq_id, ""
    if entry.is_p2p:
        sequence = entry.p2p_seq_id
    if is_told and backend not in _GLOO:
        state = _shown(entry.state or "")
    return CollectiveCall(
        group=_shown(entry.process_group[0]),
        sequence=sequence,
        operation=_shown(_HOOKED.get(operation, operation)),
        is_p2p=entry.is_p2p or re.match(r"(send|recv)\b", operation) is not None,
        is_done=_is_done(entry, backend) or not is_told,
        created_ns=entry.time_created_ns,
        input_sizes=_shapes(entry.input_sizes),
        input_dtypes=_dtypes(entry.input_dtypes),
        output_sizes=_shapes(entry.output_sizes),
        output_dtypes=_dtypes(entry.output_dtypes),
        backend=_shown(backend),
        # The recorder has the innermost frame first.
        frames=tuple(
            StackFrame(
                file=frame.filename, line=max(0, min(frame.line, _MAX_NUMBER)), function=frame.name
            )
            for frame in entry.frames[:_MAX_FRAMES][::-1]
        ),
        state=state,
    )


def _shown(name: str) -> str:
    """A name of bounded length in one line: it is shown within sentences."""
    return one_line(name[:MAX_NAME])


def _shapes(sizes: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(shape[:_MAX_DIMENSIONS]) for shape in sizes)


def _is_done(entry: DumpEntry, backend: str) -> bool:
    """gloo leaves ``state`` at ``scheduled`` and sets ``retired`` alone; others retire what timed
    out, too, and some what has only been issued."""
    return entry.state == "completed" or (entry.retired and backend in _GLOO)


def _dtypes(names: list[str] | str) -> tuple[str, ...]:
    """Types of tensors; some write that of the only one by itself."""
    if isinstance(names, str):
        names = [names] if names else []
    return tuple(map(_dtype, names))


def _dtype(name: str) -> str:
    return _DTYPES.get(name, name.lower())


def _groups(dump: RecorderDump) -> dict[str, ProcessGroup]:
    """Every group that the dump lists or uses. Where gloo lists one under an empty name, it is the
    default group."""
    listed = {
        _shown(key or group.name): ProcessGroup(_shown(group.desc), _ranks(group.ranks))
        for key, group in dump.pg_config.items()
    }
    groups: dict[str, ProcessGroup] = {}
    for entry in dump.entries:
        name, description = map(_shown, entry.process_group)
        known = listed.get(name)
        if not known and description == DEFAULT_GROUP_DESCRIPTION:
            known = listed.get("")
        ranks: tuple[int, ...] = ()
        if known is not None:
            ranks = known.ranks
        groups[name] = ProcessGroup(description, ranks)
    return {**{name: group for name, group in listed.items() if name}, **groups}


def _ranks(ranks: str | list[int]) -> tuple[int, ...]:
    """``[0, 1]`` as text or as a list."""
    numbers = map(int, re.findall(r"\d{1,9}", ranks)) if isinstance(ranks, str) else ranks
    return tuple(sorted({rank for rank in numbers if 0 <= rank < _MAX_NUMBER}))
