"""Ranks from an export: a process that ran kernels is a rank."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchscale.errors import TraceError
from torchscale.schema.profiles.span import CollectiveSpans, RankTrace, SpanCopyKind, SpanKind, Spans, Steps
from torchscale.traces.columns import (
    CollectiveRow,
    StepRow,
    is_nccl,
    join_spans,
    make_collectives,
    make_steps,
    op_of,
)
from torchscale.traces.nsys.database import Database, open_database
from torchscale.traces.soundness import MAX_NS

_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_PID_UNIT = 0x1000000
"""In globalPid and globalTid the process stands above 24 bits for the thread."""
_PUSH_POP, _START_END = 59, 60
"""NVTX event types: ranges of a thread, and of a process."""
_STEP = re.compile(r"(?:torchscale\.)?(?:ProfilerStep|step|iteration|iter)[ _:#]*(\d{1,15})", re.IGNORECASE | re.ASCII)
_HINT = "export it again from the .nsys-rep"
_RANK_MARK = re.compile(r"torchscale\.rank (\d{1,6})/(\d{1,6})")
_LAUNCH = re.compile(r"(?:cuda|cu)(?:Launch|GraphLaunch|MemcpyAsync|MemsetAsync|Memcpy\w*Async)")
_HOST_WAIT = re.compile(r"(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)Synchronize|cudaMemcpy(?:_v\d+)?$")
_PAGEABLE = 0
"""A memory kind of CUPTI."""


def read_nsys(path: Path) -> tuple[tuple[RankTrace, ...], tuple[str, ...]]:
    """The ranks of one export, and notes on them. A rank is a process that ran kernels.

    Raises:
        TraceError: it is not an export of nsys, is damaged, or no kernel was recorded.
    """
    with open_database(path) as database:
        if not database.has("StringIds") or not (database.has("META_DATA_EXPORT") or database.has("EXPORT_META_DATA")):
            raise TraceError(f"{path}: a SQLite database, but not an export of nsys (it has no StringIds)")
        # An export that is not lazy has empty tables.
        if not database.has(_KERNEL) or not any(True for _ in database.rows(f"SELECT 1 FROM {_KERNEL} LIMIT 1")):
            raise TraceError(
                f"{path}: no CUDA kernels were recorded{_recorder_message(database)}",
                hint="trace CUDA (`nsys profile -t cuda,nvtx`), and let the program end before nsys does",
            )
        pids = [
            pid for (pid,) in database.rows(f"SELECT DISTINCT globalPid FROM {_KERNEL} WHERE globalPid IS NOT NULL")
        ]
        if not pids:
            raise TraceError(f"{path}: its kernels do not say which process ran them; export with a newer nsys")
        if not all(isinstance(pid, int) for pid in pids):
            raise TraceError(f"{path}: a process number of its kernels is no integer", hint=_HINT)
        return _Export(database, path).ranks(sorted(pid for pid in pids if isinstance(pid, int)))


def _recorder_message(database: Database) -> str:
    """The warning that nsys itself left in the export."""
    if not database.has("DIAGNOSTIC_EVENT", "text"):
        return ""
    for (text,) in database.rows("SELECT text FROM DIAGNOSTIC_EVENT WHERE text LIKE '%CUDA events collected%' LIMIT 1"):
        return f"; nsys says: {' '.join(str(text).split())}"
    return ""


@dataclass(frozen=True)
class _Export:
    """One SQLite export: its ranks, with what their tables hold."""

    database: Database
    path: Path

    def ranks(self, pids: list[int]) -> tuple[tuple[RankTrace, ...], tuple[str, ...]]:
        identities = self._marked_ranks()
        notes = []
        strangers = [pid for pid in pids if pid not in identities]
        if identities and strangers:
            pids = [pid for pid in pids if pid in identities]
            shown = ", ".join(str(_short(pid)) for pid in strangers)
            notes.append(f"{self.path.name}: processes that are no ranks ran kernels and are left out: {shown}")
        if not identities:
            identities = {pid: (number, len(pids)) for number, pid in enumerate(pids)}
            if len(pids) > 1:
                shown = ", ".join(f"process {_short(pid)} as rank {rank}" for pid, (rank, _) in identities.items())
                notes.append(f"{self.path.name} does not name ranks; taken in the order of their processes: {shown}")
        base = self._base()
        names = self.database.strings(self._name_ids())
        return tuple(self._rank(pid, *identities[pid], base, names) for pid in pids), tuple(notes)

    def _rank(self, pid: int, rank: int, world_size: int, base: int, names: dict[int, str]) -> RankTrace:
        numbers = {identifier: index for index, identifier in enumerate(names)}
        kernels, communication = self._kernels(pid, base, names, numbers)
        copy_name = len(names)
        calls = join_spans(list(self._calls(pid, base, names, numbers)))
        ranges, steps = self._ranges(pid, base, copy_name + 1)
        collectives = _collectives(communication, names, calls, steps)
        parts = [kernels, *self._copies(pid, base, copy_name), calls]
        return RankTrace(
            rank=rank,
            host=self.path.name,
            pid=_short(pid),
            on_device=True,
            backend="nccl" if len(collectives) else None,
            world_size=world_size,
            source=self.path.name,
            names=(*names.values(), "copy", "data loader"),
            spans=join_spans([*parts, ranges]),
            collectives=collectives,
            steps=steps,
        )

    def _marked_ranks(self) -> dict[int, tuple[int, int]]:
        """Global pid → rank and world size, where our worker left its mark."""
        if not self.database.has("NVTX_EVENTS", "text", "globalTid"):
            return {}
        text = self._nvtx_text()
        query = f"SELECT {text}, globalTid FROM NVTX_EVENTS n WHERE {text} LIKE 'torchscale.rank %'"
        identities = {}
        for value, thread in self.database.rows(query):
            match = _RANK_MARK.fullmatch(str(value))
            if match is not None and isinstance(thread, int):
                identities[_process_of(thread)] = (int(match[1]), int(match[2]))
        return identities

    def _base(self) -> int:
        """What makes times nanoseconds since the epoch; 0 where they are that already, or no start time is exported."""
        meta = "META_DATA_EXPORT" if self.database.has("META_DATA_EXPORT") else "EXPORT_META_DATA"
        query = f"SELECT value FROM {meta} WHERE name = 'EXPORT_PARAM_TIME_NORMALIZE'"
        if any(str(value).lower() == "true" for (value,) in self.database.rows(query)):
            return 0
        if not self.database.has("TARGET_INFO_SESSION_START_TIME", "utcEpochNs"):
            return 0
        for (value,) in self.database.rows("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME"):
            if isinstance(value, int) and 0 <= value < MAX_NS:
                return value
        return 0

    def _name_column(self) -> str:
        return "shortName" if self.database.has(_KERNEL, "shortName") else "demangledName"

    def _name_ids(self) -> list[int]:
        queries = [f"SELECT DISTINCT {self._name_column()} FROM {_KERNEL}"]
        if self.database.has(_RUNTIME, "nameId"):
            queries.append(f"SELECT DISTINCT nameId FROM {_RUNTIME}")
        values = {value for query in queries for (value,) in self.database.rows(query)}
        return sorted(value for value in values if isinstance(value, int))

    def _kernels(
        self, pid: int, base: int, names: dict[int, str], numbers: dict[int, int]
    ) -> tuple[Spans, NDArray[np.int64]]:
        """Compute, and NCCL's kernels as rows of start, end, stream, launch and name."""
        table = self.database.integers(
            f"SELECT start, end, streamId, COALESCE(correlationId, 0), {self._name_column()} FROM {_KERNEL} "
            "WHERE globalPid = ?",
            (pid,),
            5,
        )
        nccl = [identifier for identifier, name in names.items() if is_nccl(name)]
        communicates = np.isin(table[:, 4], nccl)
        communication = table[communicates]
        communication[:, :2] += base
        table = table[~communicates]
        del communicates
        return _spans(table, base, SpanKind.COMPUTE, _renumber(table[:, 4], numbers)), communication

    def _copies(self, pid: int, base: int, name: int) -> Iterator[Spans]:
        for source, kinds in ((_MEMCPY, True), (_MEMSET, False)):
            if not self.database.has(source, "globalPid", "correlationId"):
                continue
            memory = "COALESCE(srcKind, -1), COALESCE(dstKind, -1)" if kinds else "-1, -1"
            if kinds and not self.database.has(source, "srcKind", "dstKind"):
                memory = "-1, -1"
            copy_kind = "copyKind" if kinds else "-1"
            table = self.database.integers(
                f"SELECT start, end, streamId, COALESCE(correlationId, 0), {copy_kind}, {memory} FROM {source} "
                "WHERE globalPid = ?",
                (pid,),
                7,
            )
            names = np.full(len(table), name, dtype=np.int32)
            detail = _copy_details(table[:, 4:]) if kinds else np.full(len(table), SpanCopyKind.FILL, dtype=np.int8)
            yield _spans(table, base, SpanKind.COPY, names, detail)

    def _calls(self, pid: int, base: int, names: dict[int, str], numbers: dict[int, int]) -> Iterator[Spans]:
        if not self.database.has(_RUNTIME, "globalTid", "correlationId", "nameId"):
            return
        for kind, pattern in ((SpanKind.LAUNCH, _LAUNCH), (SpanKind.HOST_SYNC, _HOST_WAIT)):
            wanted = [identifier for identifier, name in names.items() if pattern.match(name)]
            if not wanted:
                continue
            marks = ", ".join("?" for _ in wanted)
            table = self.database.integers(
                f"SELECT start, end, globalTid, COALESCE(correlationId, 0), nameId FROM {_RUNTIME} "
                f"WHERE globalTid >= ? AND globalTid < ? AND nameId IN ({marks})",
                (pid, pid + _PID_UNIT, *wanted),
                5,
            )
            yield _spans(table, base, kind, _renumber(table[:, 4], numbers))

    def _ranges(self, pid: int, base: int, input_name: int) -> tuple[Spans, Steps]:
        """NVTX: steps, and waits for data."""
        nothing = np.zeros((0, 4), dtype=np.int64)
        steps: list[StepRow] = []
        waits: list[tuple[int, int, int, int]] = []
        if self.database.has("NVTX_EVENTS", "text", "globalTid", "eventType", "end"):
            text = self._nvtx_text()
            query = (
                f"SELECT start, end, globalTid, {text} AS t FROM NVTX_EVENTS n "
                "WHERE globalTid >= ? AND globalTid < ? AND end IS NOT NULL AND eventType IN (?, ?) "
                "AND (t LIKE '%step%' OR t LIKE 'iter%' OR t LIKE 'enumerate(DataLoader)%' "
                "OR t = 'torchscale.data_wait')"
            )
            for start, end, thread, name in self.database.rows(query, (pid, pid + _PID_UNIT, _PUSH_POP, _START_END)):
                match = _STEP.fullmatch(str(name))
                if not isinstance(start, int) or not isinstance(end, int) or not isinstance(thread, int):
                    raise TraceError(f"{self.path}: an NVTX range whose times or thread are no integers", hint=_HINT)
                span = base + start, base + end
                if match is not None:
                    steps.append(StepRow(*span, int(match[1])))
                elif str(name).startswith(("enumerate(DataLoader)", "torchscale.data_wait")):
                    waits.append((start, end, thread, 0))
        table = np.array(waits, dtype=np.int64).reshape(-1, 4) if waits else nothing
        names = np.full(len(table), input_name, dtype=np.int32)
        return _spans(table, base, SpanKind.INPUT, names), make_steps(steps)

    def _nvtx_text(self) -> str:
        if not self.database.has("NVTX_EVENTS", "textId"):
            return "n.text"
        return "COALESCE(n.text, (SELECT s.value FROM StringIds s WHERE s.id = n.textId))"


def _collectives(
    communication: NDArray[np.int64], names: dict[int, str], calls: Spans, steps: Steps
) -> CollectiveSpans:
    """NCCL's kernels, each with the step that launched it. nsys knows neither their sizes nor their process groups."""
    numbers = _launched_in(communication[:, 3], calls, steps)
    return make_collectives(
        CollectiveRow(
            int(start),
            int(end),
            op_of(names[int(name)]),
            "",
            -1,
            -1,
            int(stream),
            step=int(step),
            queue=int(stream),
            link=int(link),
        )
        for (start, end, stream, link, name), step in zip(communication, numbers, strict=True)
    )


def _launched_in(links: NDArray[np.int64], calls: Spans, steps: Steps) -> NDArray[np.int64]:
    """Numbers of the steps whose range holds the launches with these correlation ids: the device may run a kernel long
    after the host's range has ended. -1 where no range does, or the launch was not recorded."""
    numbers = np.full(len(links), -1, dtype=np.int64)
    launches = calls.of(SpanKind.LAUNCH) & (calls.link != 0)
    if not launches.any() or not len(steps):
        return numbers
    known, first = np.unique(calls.link[launches], return_index=True)
    where = np.minimum(np.searchsorted(known, links), len(known) - 1)
    called = calls.start[launches][first][where]
    place = np.maximum(np.searchsorted(steps.start, called, side="right") - 1, 0)
    inside = (known[where] == links) & (called >= steps.start[place]) & (called < steps.end[place])
    numbers[inside] = steps.number[place[inside]]
    return numbers


def _short(global_pid: int) -> int:
    return global_pid // _PID_UNIT % _PID_UNIT


def _process_of(global_thread: int) -> int:
    return global_thread // _PID_UNIT * _PID_UNIT


def _renumber(identifiers: NDArray[np.int64], numbers: dict[int, int]) -> NDArray[np.int32]:
    ordered = np.array(sorted(numbers), dtype=np.int64)
    index = np.array([numbers[int(identifier)] for identifier in ordered], dtype=np.int32)
    return index[np.searchsorted(ordered, identifiers)] if len(ordered) else identifiers.astype(np.int32)


def _copy_details(kinds: NDArray[np.int64]) -> NDArray[np.int8]:
    """From columns copyKind, srcKind, dstKind; what memory a copy uses is left open where the export does not say."""
    copy, source, target = kinds[:, 0], kinds[:, 1], kinds[:, 2]
    detail = np.full(len(kinds), SpanCopyKind.OTHER, dtype=np.int8)
    detail[(copy == 1) & (source >= 0)] = SpanCopyKind.HOST_TO_DEVICE
    detail[(copy == 1) & (source == _PAGEABLE)] = SpanCopyKind.HOST_TO_DEVICE_PAGEABLE
    detail[(copy == 2) & (target >= 0)] = SpanCopyKind.DEVICE_TO_HOST
    detail[(copy == 2) & (target == _PAGEABLE)] = SpanCopyKind.DEVICE_TO_HOST_PAGEABLE
    return detail


def _spans(
    table: NDArray[np.int64],
    base: int,
    kind: SpanKind,
    names: NDArray[np.int32],
    detail: NDArray[np.int8] | None = None,
) -> Spans:
    """From columns start, end, lane, link."""
    count = len(table)
    start = table[:, 0] + base
    return Spans(
        start=start,
        end=table[:, 1] + base,
        kind=np.full(count, kind, dtype=np.int8),
        name=names,
        lane=table[:, 2].copy(),
        link=table[:, 3].copy(),
        detail=np.zeros(count, dtype=np.int8) if detail is None else detail,
    )
