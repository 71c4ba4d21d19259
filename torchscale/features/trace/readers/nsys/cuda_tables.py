"""Tables of what CUDA did: kernels, copies and calls of the runtime as spans."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from torchscale.catalog.communication import communicates
from torchscale.features.trace.readers.nsys.columns import (
    copy_details,
    copy_spans,
    renumber,
    spans_of,
)
from torchscale.features.trace.readers.nsys.database import Database
from torchscale.features.trace.readers.nsys.nvtx import PID_UNIT
from torchscale.features.trace.readers.soundness import MAX_NS
from torchscale.features.trace.span import SpanCopyKind, SpanKind, Spans

KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_IDENTIFIERS = (
    (KERNELS, "globalPid"),
    (_MEMCPY, "globalPid"),
    (_MEMSET, "globalPid"),
    (_RUNTIME, "globalTid", "nameId"),
    ("NVTX_EVENTS", "globalTid", "eventType", "textId"),
)
"""Tables, and their columns by which rows are chosen."""
_LAUNCH = re.compile(r"(?:cuda|cu)(?:Launch|GraphLaunch|MemcpyAsync|MemsetAsync|Memcpy\w*Async)")
_HOST_WAIT = re.compile(
    r"(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)Synchronize|cudaMemcpy(?:_v\d+)?$"
)


class CudaTables:
    """The tables of one export.

    Raises:
        TraceError: columns by which rows are chosen hold other than numbers.
    """

    def __init__(self, database: Database) -> None:
        for table, *columns in _IDENTIFIERS:
            database.check_identifiers(table, *columns)
        self._database = database

    @cached_property
    def base(self) -> int:
        """What makes times nanoseconds since the epoch; 0 where they are that already, or no start
        time is exported."""
        meta = "META_DATA_EXPORT" if self._database.has("META_DATA_EXPORT") else "EXPORT_META_DATA"
        query = f"SELECT value FROM {meta} WHERE name = 'EXPORT_PARAM_TIME_NORMALIZE'"
        if any(str(value).lower() == "true" for (value,) in self._database.rows(query)):
            return 0
        if not self._database.has("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"):
            return 0
        for (value,) in self._database.rows(
            "SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME"
        ):
            if isinstance(value, int) and 0 <= value < MAX_NS:
                return value
        return 0

    @property
    def _name_column(self) -> str:
        if self._database.has(KERNELS, "shortName"):
            return "shortName"
        return "demangledName"

    @property
    def _full_name_column(self) -> str:
        """A short name lacks the namespaces that tell whose kernel it is."""
        if not self._database.has(KERNELS, "demangledName"):
            return self._name_column
        is_id = "typeof(demangledName) = 'integer'"
        return f"CASE WHEN {is_id} THEN demangledName ELSE {self._name_column} END"

    @cached_property
    def _communicating(self) -> list[int]:
        """Ids of the names of kernels that communicate."""
        query = f"SELECT DISTINCT {self._full_name_column} FROM {KERNELS}"
        used = {value for (value,) in self._database.rows(query) if isinstance(value, int)}
        names = self._database.strings(sorted(used)) | self.names
        return [number for number, name in names.items() if communicates(name)]

    @cached_property
    def names(self) -> dict[int, str]:
        """Names of kernels and of calls of the CUDA runtime, by their ids."""
        queries = [f"SELECT DISTINCT {self._name_column} FROM {KERNELS}"]
        if self._database.has(_RUNTIME, "nameId"):
            queries.append(f"SELECT DISTINCT nameId FROM {_RUNTIME}")
        values = {value for query in queries for (value,) in self._database.rows(query)}
        return self._database.strings(sorted(value for value in values if isinstance(value, int)))

    def kernels(self, pid: int, numbers: dict[int, int]) -> tuple[Spans, NDArray[np.int64]]:
        """Compute, and NCCL's kernels as rows of start, end, stream, launch and name."""
        table = self._database.integers(
            f"SELECT start, end, streamId, COALESCE(correlationId, 0), {self._name_column}, "
            f"{self._full_name_column} FROM {KERNELS} WHERE globalPid = ?",
            (pid,),
            6,
        )
        is_communication = np.isin(table[:, 4:], self._communicating).any(axis=1)
        table = table[:, :5]
        communication = table[is_communication]
        communication[:, :2] += self.base
        table = table[~is_communication]
        return spans_of(
            table, self.base, SpanKind.COMPUTE, renumber(table[:, 4], numbers)
        ), communication

    def copies(self, pid: int, name: int) -> Iterator[Spans]:
        """Copies and fills of memory, all under the name of this number."""
        if self._database.has(_MEMCPY, "globalPid", "correlationId"):
            memory = "-1, -1"
            if self._database.has(_MEMCPY, "srcKind", "dstKind"):
                memory = "COALESCE(srcKind, -1), COALESCE(dstKind, -1)"
            table = self._copy_table(pid, _MEMCPY, f"copyKind, {memory}")
            yield copy_spans(table, self.base, name, copy_details(table[:, 5:]))
        if self._database.has(_MEMSET, "globalPid", "correlationId"):
            table = self._copy_table(pid, _MEMSET, "0, 0, 0")
            yield copy_spans(
                table, self.base, name, np.full(len(table), SpanCopyKind.FILL, dtype=np.int8)
            )

    def _copy_table(self, pid: int, source: str, columns: str) -> NDArray[np.int64]:
        size = "COALESCE(bytes, -1)" if self._database.has(source, "bytes") else "-1"
        columns = f"start, end, streamId, COALESCE(correlationId, 0), {size}, {columns}"
        return self._database.integers(
            f"SELECT {columns} FROM {source} WHERE globalPid = ?", (pid,), 8
        )

    def calls(self, pid: int, numbers: dict[int, int]) -> Iterator[Spans]:
        """Calls of the CUDA runtime that launch work or wait for it."""
        if not self._database.has(_RUNTIME, "globalTid", "correlationId", "nameId"):
            return
        for kind, pattern in ((SpanKind.LAUNCH, _LAUNCH), (SpanKind.HOST_SYNC, _HOST_WAIT)):
            wanted = [identifier for identifier, name in self.names.items() if pattern.match(name)]
            if not wanted:
                continue
            marks = ", ".join("?" for _ in wanted)
            table = self._database.integers(
                f"SELECT start, end, globalTid, COALESCE(correlationId, 0), nameId FROM {_RUNTIME} "
                f"WHERE globalTid >= ? AND globalTid < ? AND nameId IN ({marks})",
                (pid, pid + PID_UNIT, *wanted),
                5,
            )
            yield spans_of(table, self.base, kind, renumber(table[:, 4], numbers))
