"""Reads what torch's flight recorders dump: JSON, or pickles that hold nothing but plain values.

Format: ``FlightRecorder.hpp`` of torch (versions 2.0 to 2.10 of the format). Differences between
backends are evened out: gloo never sets ``state`` and lists its groups under an empty name, and of
backends that torch records by hooks some never say when a call completed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

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
from torchscale.features.watch.hang.plain_pickle import plain_pickle
from torchscale.schema.launch.hang import StackFrame
from torchscale.util.lenient import read_fields
from torchscale.util.text import one_line

MAX_DUMP_BYTES = 64 << 20
"""torch keeps 2,000 entries by default: 2 MB of JSON, some 10 MB of pickle with stacks."""
_MAX_VALUES = 4_000_000
"""Shapes and frames of one dump: a pickle may name one list a million times and unfold to any
size."""
_MAX_ENTRIES = 100_000
"""Maximum number of entries of one rank; torch keeps 2,000 unless it is told otherwise."""
_MAX_DIMENSIONS = 64
"""Maximum number of dimensions of a tensor in torch."""
_MAX_FRAMES = 100
_MAX_NAME = 80
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


_IDENTIFIERS = (
    "process_group",
    "pg_id",
    "collective_seq_id",
    "p2p_seq_id",
    "profiling_name",
    "is_p2p",
    "time_created_ns",
)
"""Of an entry: what ranks are compared by."""


class _Frame(msgspec.Struct, gc=False):
    name: str = ""
    filename: str = ""
    line: int = 0


class _Entry(msgspec.Struct, gc=False):
    record_id: int = 0
    process_group: tuple[str, str] = ("", "")
    pg_id: int = 0
    collective_seq_id: int = 0
    p2p_seq_id: int = 0
    profiling_name: str = ""
    time_created_ns: int = 0
    input_sizes: list[list[int]] = []
    input_dtypes: list[str] | str = []
    output_sizes: list[list[int]] = []
    output_dtypes: list[str] | str = []
    state: str | None = None
    time_discovered_started_ns: int | msgspec.UnsetType | None = msgspec.UNSET
    retired: bool = False
    is_p2p: bool = False
    frames: list[_Frame] = []


class _Group(msgspec.Struct, gc=False):
    name: str = ""
    desc: str = ""
    ranks: str | list[int] = ""


class _Dump(msgspec.Struct, gc=False):
    version: str = ""
    entries: list[_Entry] = []
    pg_config: dict[str, _Group] = {}


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
    _check_size(content)
    unread = Counter[str]()
    try:
        dump = _dump(content, unread)
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


def _dump(content: Mapping[Any, Any], unread: Counter[str]) -> _Dump:
    """The dump; fields of another type than torch writes are unknown for their entry alone, and
    counted in ``unread``. Numbers may be written as texts.

    Raises:
        ValueError: it has no list of entries, or what entries are matched by is of another type.
    """
    try:
        return msgspec.convert(content, _Dump, strict=False)
    except msgspec.ValidationError:
        entries, groups = content.get("entries"), content.get("pg_config")
        if not isinstance(entries, list):
            raise
    dump = _Dump(str(content["version"])[:_MAX_NAME])
    for place, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise ValueError(f"entries[{place}] is no object")  # noqa: TRY004 - of the file
        try:
            dump.entries.append(read_fields(_Entry, entry, unread, strict=_IDENTIFIERS))
        except ValueError as error:
            raise ValueError(f"entries[{place}].{error}") from error
    if isinstance(groups, Mapping):
        for name, group in groups.items():
            if isinstance(group, Mapping):
                dump.pg_config[str(name)] = read_fields(_Group, group, unread, within="pg_config.")
            else:
                unread["pg_config"] += 1
    elif groups is not None:
        unread["pg_config"] += 1
    return dump


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


def _as_list(value: object) -> list[Any]:
    """``value``; empty where it is no list."""
    if isinstance(value, list):
        return value
    return []


def _check_size(content: Mapping[Any, Any]) -> None:
    """Refuse what unfolds to more values than a recorder keeps, before it is copied."""
    entries = content.get("entries")
    if isinstance(entries, list) and len(entries) > _MAX_ENTRIES:
        raise TraceError(f"{len(entries):,} collectives, more than a flight recorder keeps")
    count = 0
    for entry in _as_list(entries):
        count += 1
        for key in ("input_sizes", "output_sizes"):
            shapes = entry.get(key) if isinstance(entry, dict) else None
            for shape in _as_list(shapes):
                count += 1 + len(_as_list(shape))
                if count > _MAX_VALUES:
                    raise TraceError("more shapes than a flight recorder keeps")
        for key in ("frames", "input_dtypes", "output_dtypes"):
            values = entry.get(key) if isinstance(entry, dict) else None
            count += len(_as_list(values))
        if count > _MAX_VALUES:
            raise TraceError("more values than a flight recorder keeps")


def _backend(entry: _Entry) -> str:
    """``nccl`` of ``nccl:all_reduce``; empty without."""
    backend, separator, _ = entry.profiling_name.partition(":")
    if not separator:
        return ""
    return backend


def _owner(entry: _Entry) -> tuple[str, str]:
    """Whose numbers an entry has: each backend of a group counts by itself."""
    return entry.process_group[0], _backend(entry)


def _newest_groups(entries: list[_Entry]) -> dict[tuple[str, str], int]:
    """Group and backend → its latest id: a process that joins a group again under the same name
    counts from 1 again."""
    newest: dict[tuple[str, str], int] = {}
    for entry in entries:
        owner = _owner(entry)
        newest[owner] = max(entry.pg_id, newest.get(owner, entry.pg_id))
    return newest


def _untold(entries: Sequence[_Entry]) -> frozenset[str]:
    """Backends of which nobody tells when a call completed: torch's hooks retire each call as it is
    issued then, and leave its state."""
    seen = {_backend(entry) for entry in entries}
    told = {
        _backend(entry)
        for entry in entries
        if not entry.retired or entry.state in ("started", "completed")
    }
    return frozenset(name for name in seen - told - _GLOO if not is_nccl(name))


def _tells_starts(entries: Sequence[_Entry]) -> dict[str, bool]:
    """Backend → whether completed calls say when the device began them: NCCL's do where torch
    measures times, and those of some backends never do."""
    told: dict[str, bool] = {}
    for entry in entries:
        backend, started = _backend(entry), entry.time_discovered_started_ns
        if entry.state == COMPLETED and started is not msgspec.UNSET and backend not in _GLOO:
            told[backend] = told.get(backend, False) or bool(started)
    return told


def _call(entry: _Entry, *, is_told: bool) -> CollectiveCall:
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
    return one_line(name[:_MAX_NAME])


def _shapes(sizes: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(shape[:_MAX_DIMENSIONS]) for shape in sizes)


def _is_done(entry: _Entry, backend: str) -> bool:
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


def _groups(dump: _Dump) -> dict[str, ProcessGroup]:
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
