"""The NVTX ranges and marks of an export, and the values that a library attached to a range as its
payload."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from torchscale.errors import TraceError
from torchscale.features.trace.readers.nsys.database import AGAIN, STRINGS, Database

PID_UNIT = 0x1000000
"""Unit of a process: in globalPid and globalTid the process is above 24 bits for the thread."""
_TABLE = "NVTX_EVENTS"
_SCHEMAS, _ENTRIES = "NVTX_PAYLOAD_SCHEMAS", "NVTX_PAYLOAD_SCHEMA_ENTRIES"
_PUSH_POP, _START_END = 59, 60
"""Event types: ranges of a thread, and of a process."""
_HEADER = struct.Struct("<IIIIQQ")
"""Header before each payload in ``binaryData``: domain, flags, schema, flags, bytes of the payload,
bytes with this header. As exports of 2025 and 2026 have it; anything else is not decoded."""
_INTEGERS = {5: "<i", 6: "<I", 15: "<i", 16: "<I", 17: "<q", 18: "<Q", 22: "<Q"}
"""Payload entry types of NVTX: int, unsigned, int32, uint32, int64, uint64, size_t."""

_MAX_ENTRIES = 100_000
"""Maximum number of entries of all payloads of all processes: a library registers some tens."""
_MAX_FIELDS = 100
"""Maximum number of fields of one payload, which is decoded for each range: those of NCCL have less
than ten."""
_MAX_TEXT = 8_192
"""Characters of a text that are read, more than those of any range that is looked for: any number
of ranges can have one text."""
_Registered = dict[int, set[tuple[object, ...]]]
"""Place of an entry → type, name and offset, of each process that registered it."""
_Field = tuple[str, str, int]
"""Name, form and place of an integer of a payload."""

Payload = Mapping[str, int]
"""Values by their names, integers alone."""
NO_PAYLOAD: Payload = {}


class NvtxRange(NamedTuple):
    """A range, in nanoseconds of the export."""

    start: int
    end: int
    thread: int
    text: str
    payload: Payload = NO_PAYLOAD


@dataclass(frozen=True)
class NvtxEvents:
    """The NVTX events of an export."""

    database: Database
    path: Path

    @property
    def lacks_payloads(self) -> bool:
        """Whether ranges have payloads that were not exported, which nsys does on request alone."""
        if not self.database.has(_ENTRIES) or not self.database.has(_TABLE, "binaryData"):
            return False
        exported = self.database.rows(
            f"SELECT 1 FROM {_TABLE} WHERE binaryData IS NOT NULL LIMIT 1"
        )
        return not any(True for _ in exported)

    def ranges(self, pid: int, like: Sequence[str]) -> Iterator[NvtxRange]:
        """Ranges of a process that have ended, with a text like one of these patterns (of SQL).

        Raises:
            TraceError: a time or thread is no integer.
        """
        payload = "n.binaryData" if self.database.has(_TABLE, "binaryData") else "NULL"
        kinds = (
            f"n.end IS NOT NULL AND n.eventType IN ({_PUSH_POP}, {_START_END}) AND n.globalTid "
            "BETWEEN ? AND ?"
        )
        columns = f"n.start, n.end, n.globalTid, {payload}"
        process = (pid, pid + (PID_UNIT - 1))
        for text, start, end, thread, blob in self._rows(columns, like, kinds, process):
            if (
                not isinstance(start, int)
                or not isinstance(end, int)
                or not isinstance(thread, int)
            ):
                raise TraceError(
                    f"{self.path}: an NVTX range whose times or thread are no integers", hint=AGAIN
                )
            decoded = self._decoded(blob) if isinstance(blob, bytes) else NO_PAYLOAD
            yield NvtxRange(start, end, thread, text, decoded)

    def marks(self, like: str) -> Iterator[tuple[int, str]]:
        """Process (globalPid) and text of the marks of all processes with such a text."""
        for text, thread in self._rows("n.globalTid", [like], "n.globalTid IS NOT NULL", ()):
            if isinstance(thread, int):
                yield thread // PID_UNIT * PID_UNIT, text

    def _rows(
        self, columns: str, like: Sequence[str], where: str, values: tuple[int, ...]
    ) -> Iterator[tuple[Any, ...]]:
        """Text and ``columns`` of the events with such a text. Texts are many, and each is read and
        compared once, not once an event."""
        if not self.database.has(_TABLE, "text", "globalTid", "eventType", "end"):
            return
        of_text = " OR ".join(["{0} LIKE ?"] * len(like))
        number, by_number = "NULL", "0"
        texts: dict[object, object] = {}
        known: dict[str, str] = {}
        if self.database.has(_TABLE, "textId"):
            query = f"SELECT id, substr(value, 1, {_MAX_TEXT}) FROM {STRINGS} WHERE "
            found = self.database.rows(query + of_text.format("value"), like)
            texts = {row[0]: row[1] for row in found}
            number = "n.textId"
            by_number = (
                f"n.text IS NULL AND n.textId IN (SELECT id FROM {STRINGS} WHERE "
                f"{of_text.format('value')})"
            )
            like = [*like, *like]
        query = (
            f"SELECT {number}, substr(n.text, 1, {_MAX_TEXT}), {columns} FROM {_TABLE} n WHERE "
            f"{where} AND ({of_text.format('n.text')} OR ({by_number}))"
        )
        for place, of_row, *rest in self.database.rows(query, (*values, *like)):
            text = texts.get(place) if of_row is None else of_row
            if isinstance(text, str):  # else bytes, which SQLite compares as text
                yield (known.setdefault(text, text), *rest)

    def _decoded(self, blob: bytes) -> Payload:
        """Integers of a payload by name; nothing where its form is not known."""
        if len(blob) < _HEADER.size:
            return NO_PAYLOAD
        domain, _, schema, _, size, whole = _HEADER.unpack_from(blob)
        if whole != _HEADER.size + size or len(blob) < whole:
            return NO_PAYLOAD
        values = {}
        for name, form, offset in self._fields.get((domain, schema), ()):
            if offset + struct.calcsize(form) <= size:
                (values[name],) = struct.unpack_from(form, blob, _HEADER.size + offset)
        return values

    @cached_property
    def _fields(self) -> dict[tuple[object, object], list[_Field]]:
        """Integers of each payload, by domain and schema.

        Raises:
            TraceError: there is more of it than programs register.
        """
        columns = ("domainId", "schemaId", "idx", "type", "name", "offset")
        if not self.database.has(_ENTRIES, *columns):
            return {}
        found: dict[tuple[object, object], _Registered] = {}
        query = f"SELECT {', '.join(columns)} FROM {_ENTRIES} LIMIT {_MAX_ENTRIES + 1}"
        for count, row in enumerate(self.database.rows(query)):
            if count == _MAX_ENTRIES:
                raise TraceError(
                    f"{self.path}: more than {_MAX_ENTRIES:,} entries in {_ENTRIES}", hint=AGAIN
                )
            domain, schema, place, *entry = row
            if isinstance(place, int):
                registered = found.setdefault((domain, schema), defaultdict(set))
                registered[place].add(tuple(entry))
        return {key: list(_integers(registered)) for key, registered in found.items()}


def _integers(registered: _Registered) -> Iterator[_Field]:
    """Nothing where processes registered different ones under one number."""
    if len(registered) > _MAX_FIELDS or any(len(entries) > 1 for entries in registered.values()):
        return
    for entries in registered.values():
        ((kind, name, offset),) = entries
        form = _INTEGERS.get(kind) if isinstance(kind, int) else None
        if form is not None and (offset is None or (isinstance(offset, int) and offset >= 0)):
            yield str(name), form, offset or 0  # that of the first entry is not exported
