"""The form of a dump: its entries and groups, of which fields of another type are unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from torchscale.errors import TraceError
from torchscale.util.lenient import read_fields

_MAX_VALUES = 4_000_000
"""Shapes and frames of one dump: a pickle may name one list a million times and unfold to any
size."""
_MAX_ENTRIES = 100_000
"""Maximum number of entries of one rank; torch keeps 2,000 unless it is told otherwise."""
MAX_NAME = 80
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


class DumpEntry(msgspec.Struct, gc=False):
    """A collective."""

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


class RecorderDump(msgspec.Struct, gc=False):
    """What a recorder dumps."""

    version: str = ""
    entries: list[DumpEntry] = []
    pg_config: dict[str, _Group] = {}


def decode_dump(content: Mapping[Any, Any], unread: Counter[str]) -> RecorderDump:
    """The dump; fields of another type than torch writes are unknown for their entry alone, and
    counted in ``unread``. Numbers may be written as texts.

    Raises:
        ValueError: it has no list of entries, or what entries are matched by is of another type.
    """
    try:
        return msgspec.convert(content, RecorderDump, strict=False)
    except msgspec.ValidationError:
        entries, groups = content.get("entries"), content.get("pg_config")
        if not isinstance(entries, list):
            raise
    dump = RecorderDump(str(content["version"])[:MAX_NAME])
    for place, entry in enumerate(entries):
        if not isinstance(entry, Mapping):
            raise ValueError(f"entries[{place}] is no object")  # noqa: TRY004 - of the file
        try:
            dump.entries.append(read_fields(DumpEntry, entry, unread, strict=_IDENTIFIERS))
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


def _as_list(value: object) -> list[Any]:
    """``value``; empty where it is no list."""
    if isinstance(value, list):
        return value
    return []


def check_size(content: Mapping[Any, Any]) -> None:
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
