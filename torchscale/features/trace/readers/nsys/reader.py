"""Ranks from exports: a process that ran kernels is a rank; where none did, a process that marked
itself as one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from torchscale.catalog.communication import communicates, is_nccl_kernel, op_of
from torchscale.errors import TraceError
from torchscale.features.trace.readers.columns import (
    CollectiveRow,
    NameTable,
    StepRow,
    direction_of,
    join_spans,
    make_collectives,
    make_steps,
)
from torchscale.features.trace.readers.nsys import nccl
from torchscale.features.trace.readers.nsys.columns import (
    copy_details,
    copy_spans,
    ranges_as_spans,
    renumber,
    spans_of,
)
from torchscale.features.trace.readers.nsys.communicators import (
    Communicators,
    ExportedRank,
    NcclSpan,
)
from torchscale.features.trace.readers.nsys.database import AGAIN, Database, open_database
from torchscale.features.trace.readers.nsys.launches import Launches, copy_collectives, steps_at
from torchscale.features.trace.readers.nsys.nvtx import PID_UNIT, NvtxEvents, NvtxRange
from torchscale.features.trace.readers.soundness import MAX_NS
from torchscale.features.trace.span import RankTrace, SpanCopyKind, SpanKind, Spans, Steps
from torchscale.schema.profiles.nvtx_names import (
    COLLECTION,
    COLLECTIVE_PREFIX,
    COMPUTE_PHASES,
    DATA_WAIT,
    RANK_MARK,
    CollectiveName,
)

_KERNEL = "CUPTI_ACTIVITY_KIND_KERNEL"
_MEMCPY = "CUPTI_ACTIVITY_KIND_MEMCPY"
_MEMSET = "CUPTI_ACTIVITY_KIND_MEMSET"
_RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"
_IDENTIFIERS = (
    (_KERNEL, "globalPid"),
    (_MEMCPY, "globalPid"),
    (_MEMSET, "globalPid"),
    (_RUNTIME, "globalTid", "nameId"),
    ("NVTX_EVENTS", "globalTid", "eventType", "textId"),
)
"""Tables, and their columns by which rows are chosen."""
_STEP = re.compile(
    r"(?:torchscale\.)?(?:ProfilerStep|step|iteration|iter)[ _:#]*(\d{1,15})(?:, "
    r"(?:seq|op_id|sizes)\b.*)?",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
"""Names of steps, with what torch.autograd.profiler.emit_nvtx adds to a name."""
_STEP_PATTERNS = ("%step%", "iter%")
_WAIT_PATTERNS = ("enumerate(DataLoader)%", DATA_WAIT)
_LAUNCH = re.compile(r"(?:cuda|cu)(?:Launch|GraphLaunch|MemcpyAsync|MemsetAsync|Memcpy\w*Async)")
_HOST_WAIT = re.compile(
    r"(?:cuda|cu|hip)(?:Stream|Device|Event|Ctx)Synchronize|cudaMemcpy(?:_v\d+)?$"
)
_MAX_PROCESSES = 1024
"""Maximum number of processes of one export: a node has some tens of ranks. All tables are gone
through for each."""
_MAX_SHOWN = 60
"""Characters of a name in a message."""
_MAX_LISTED = 16
"""Processes that are named."""
_MAX_MESSAGE = 300
"""Characters of what nsys says: three lines of a terminal."""
_NO_LANE = -1
"""gloo's own threads run its collectives; the thread that calls one goes on."""


def read_nsys(paths: Sequence[Path]) -> tuple[tuple[RankTrace, ...], tuple[str, ...]]:
    """The ranks of the exports of one run, and notes on them.

    Raises:
        TraceError: a file is not an export of nsys or is damaged, or neither a kernel nor a marked
            rank was recorded.
    """
    processes: list[ExportedRank] = []
    notes: list[str] = []
    for path in paths:
        found, about = read_export(path)
        processes += found
        notes += about
    return ranks_of_run(processes, notes)


def read_export(path: Path) -> tuple[list[ExportedRank], list[str]]:
    """The processes of one export, and notes on them.

    Raises:
        TraceError: as of :func:`read_nsys`.
    """
    with open_database(path) as database:
        return _Export(database, path).processes()


def ranks_of_run(
    processes: list[ExportedRank], notes: list[str]
) -> tuple[tuple[RankTrace, ...], tuple[str, ...]]:
    """The ranks of all exports of a run, with the collectives of their communicators, and notes."""
    processes = _numbered_through(processes)
    communicators = Communicators(processes)
    told = (*notes, *communicators.notes)
    return tuple(communicators.trace(process) for process in processes), told


def _numbered_through(processes: list[ExportedRank]) -> list[ExportedRank]:
    """Ranks of several nodes whose exports do not name them, in the order of the files."""
    numbers = [process.trace.rank for process in processes]
    sources = {process.trace.source for process in processes}
    if len(set(numbers)) == len(numbers) or len(sources) == 1:
        return processes
    ordered = sorted(processes, key=lambda process: (process.trace.source, process.trace.rank))
    return [
        replace(process, trace=replace(process.trace, rank=number, world_size=len(ordered)))
        for number, process in enumerate(ordered)
    ]


@dataclass(frozen=True)
class _Identity:
    """Which rank a process (globalPid) is."""

    pid: int
    rank: int
    world_size: int

    @property
    def short(self) -> int:
        """PID of the process."""
        return self.pid // PID_UNIT % PID_UNIT


class _Export:
    """One SQLite export: its ranks, with what their tables hold."""

    def __init__(self, database: Database, path: Path) -> None:
        """Look at the tables.

        Raises:
            TraceError: it is not an export of nsys.
        """
        database.check_names()
        if not database.has("META_DATA_EXPORT") and not database.has("EXPORT_META_DATA"):
            raise TraceError(
                f"{path}: a SQLite database, but not an export of nsys (it has neither "
                "META_DATA_EXPORT nor EXPORT_META_DATA)"
            )
        for table, *columns in _IDENTIFIERS:
            database.check_identifiers(table, *columns)
        self._database, self._path = database, path
        self._nvtx = NvtxEvents(database, path)

    def processes(self) -> tuple[list[ExportedRank], list[str]]:
        """The ranks, and notes on who they are.

        Raises:
            TraceError: there are none.
        """
        marked = self._marked()
        # An export that is not lazy has empty tables.
        if self._database.has(_KERNEL) and any(
            True for _ in self._database.rows(f"SELECT 1 FROM {_KERNEL} LIMIT 1")
        ):
            identities, notes = self._device_ranks(marked)
            return [self._device_rank(identity) for identity in identities], notes
        if not marked:
            raise TraceError(
                f"{self._path}: no CUDA kernels were recorded{self._recorder_message()}",
                hint="trace CUDA (`nsys profile -t cuda,nvtx`), and let the program end before "
                "nsys does; CPU ranks of your own programs are recorded by torch.profiler (--tool "
                "kineto)",
            )
        return [
            self._host_rank(identity)
            for identity in sorted(marked.values(), key=lambda one: one.rank)
        ], []

    def _marked(self) -> dict[int, _Identity]:
        """Processes that marked themselves as ranks.

        Raises:
            TraceError: one did as several, or they are more than a node has.
        """
        marked: dict[int, _Identity] = {}
        for pid, text in self._nvtx.marks("torchscale.rank %"):
            match = RANK_MARK.fullmatch(text)
            if match is None:
                continue
            identity = _Identity(pid, int(match[1]), int(match[2]))
            known = marked.setdefault(pid, identity)
            if known != identity:
                raise TraceError(
                    f"{self._path}: process {identity.short} is marked as rank {known.rank} of "
                    f"{known.world_size} and as rank {identity.rank} of {identity.world_size}",
                    hint="mark each process once, as one rank",
                )
        self._check_count(len(marked))
        return marked

    def _check_count(self, processes: int) -> None:
        if processes > _MAX_PROCESSES:
            raise TraceError(
                f"{self._path}: {processes:,} processes ran kernels or are marked as ranks; at "
                f"most {_MAX_PROCESSES:,} of one node are read",
                hint=AGAIN,
            )

    def _device_ranks(self, marked: dict[int, _Identity]) -> tuple[list[_Identity], list[str]]:
        pids = [
            pid
            for (pid,) in self._database.rows(
                f"SELECT DISTINCT globalPid FROM {_KERNEL} WHERE globalPid IS NOT NULL"
            )
        ]
        if not pids:
            raise TraceError(
                f"{self._path}: its kernels do not say which process ran them; export with a "
                "newer nsys"
            )
        self._check_count(len(pids))
        ordered = sorted(self._process_number(pid) for pid in pids)
        if marked:
            strangers = [self._process_text(pid) for pid in ordered if pid not in marked]
            if len(strangers) == len(ordered):
                raise TraceError(
                    f"{self._path}: the processes that ran kernels are marked as no ranks: "
                    f"{_listed(strangers)}",
                    hint="mark the processes that run kernels, or none",
                )
            about = f"{self._path.name}: processes that are no ranks ran kernels and are left out: "
            return [marked[pid] for pid in ordered if pid in marked], [
                about + _listed(strangers)
            ] * bool(strangers)
        identities = [_Identity(pid, number, len(ordered)) for number, pid in enumerate(ordered)]
        if len(ordered) == 1:
            return identities, []
        shown = _listed(
            [f"process {self._process_text(one.pid)} as rank {one.rank}" for one in identities]
        )
        about = "does not name ranks; taken, as all of the job, in the order of their processes"
        return identities, [f"{self._path.name} {about}: {shown}"]

    def _process_number(self, pid: object) -> int:
        """The globalPid of a kernel.

        Raises:
            TraceError: it is none.
        """
        if isinstance(pid, int) and pid % PID_UNIT == 0:
            return pid
        raise TraceError(
            f"{self._path}: {str(pid)[:_MAX_SHOWN]} as the process of a kernel; expected its "
            f"number times {PID_UNIT:,}",
            hint=AGAIN,
        )

    def _process_text(self, pid: int) -> str:
        """``144 (python3)``, or the number alone where the export does not name it."""
        number = _Identity(pid, 0, 1).short
        if not self._database.has("PROCESSES", "globalPid", "name"):
            return str(number)
        query = "SELECT name FROM PROCESSES WHERE globalPid = ? LIMIT 1"
        for (name,) in self._database.rows(query, (pid,)):
            if isinstance(name, str) and name:
                return f"{number} ({Path(name).name[:_MAX_SHOWN]})"
        return str(number)

    def _recorder_message(self) -> str:
        """The warning that nsys itself left in the export."""
        if not self._database.has("DIAGNOSTIC_EVENT", "text"):
            return ""
        query = (
            "SELECT text FROM DIAGNOSTIC_EVENT WHERE text LIKE '%CUDA events collected%' LIMIT 1"
        )
        for (text,) in self._database.rows(query):
            return f"; nsys says: {' '.join(str(text)[:_MAX_MESSAGE].split())}"
        return ""

    def _device_rank(self, identity: _Identity) -> ExportedRank:
        """A rank by its kernels."""
        pid, names = identity.pid, self._names
        numbers = {identifier: index for index, identifier in enumerate(names)}
        calls = join_spans(list(self._calls(pid, numbers)))
        steps = self._steps(pid)
        launches = Launches(calls, steps)
        nccl_calls = nccl.NcclCalls(
            [self._on_clock(item) for item in self._nvtx.ranges(pid, nccl.RANGES)]
        )
        compute, kernels = self._kernels(pid, numbers)
        communication = [
            NcclSpan(
                int(start),
                int(end),
                names[int(name)],
                int(stream),
                int(link),
                step,
                call,
                bool(is_launched),
            )
            for (start, end, stream, link, name), step, call, is_launched in zip(
                kernels,
                launches.steps_of(kernels[:, 3]),
                launches.calls_of(kernels[:, [3, 4]], nccl_calls, names),
                launches.are_recorded(kernels[:, 3]),
                strict=True,
            )
        ]
        copies = list(self._copies(pid, len(names)))
        if nccl_calls:
            copies, by_copies = copy_collectives(copies, launches, nccl_calls, communication)
            communication += by_copies
        waits = ranges_as_spans(self._waits(pid), self._base, SpanKind.INPUT, len(names) + 1)
        trace = RankTrace(
            rank=identity.rank,
            host=self._path.name,
            pid=identity.short,
            on_device=True,
            backend="nccl" if any(is_nccl_kernel(span.name) for span in communication) else None,
            world_size=identity.world_size,
            source=self._path.name,
            names=(*names.values(), "copy", "data loader"),
            spans=join_spans([compute, *copies, calls, waits]),
            collectives=make_collectives(()),
            steps=steps,
        )
        return ExportedRank(
            trace, tuple(communication), bool(nccl_calls) and self._nvtx.lacks_payloads
        )

    def _host_rank(self, identity: _Identity) -> ExportedRank:
        """A CPU rank, by what the worker marks: phases of its steps, gloo's collectives, waits for
        data."""
        pid, names = identity.pid, NameTable()
        parts = [
            ranges_as_spans(
                self._waits(pid), self._base, SpanKind.INPUT, names.number("data loader")
            )
        ]
        for phase in COMPUTE_PHASES:
            number = names.number(phase.removeprefix("torchscale."))
            parts.append(
                ranges_as_spans(
                    self._nvtx.ranges(pid, [phase]), self._base, SpanKind.OPERATOR, number
                )
            )
        collections = self._nvtx.ranges(pid, [COLLECTION])
        parts.append(
            ranges_as_spans(
                collections, self._base, SpanKind.PAUSE, names.number("garbage collection")
            )
        )
        steps = self._steps(pid)
        rows = [
            row
            for item in self._nvtx.ranges(pid, [f"{COLLECTIVE_PREFIX}%"])
            if (name := CollectiveName.parse(item.text)) is not None
            # Others are barriers around the recording, not all of which every rank has ended when
            # it ends.
            and (row := self._gloo_row(self._on_clock(item), name, steps)).step >= 0
        ]
        trace = RankTrace(
            rank=identity.rank,
            host=self._path.name,
            pid=identity.short,
            on_device=False,
            backend="gloo" if rows else None,
            world_size=identity.world_size,
            source=self._path.name,
            names=names.names,
            spans=join_spans(parts),
            collectives=make_collectives(rows),
            steps=steps,
        )
        return ExportedRank(trace)

    def _on_clock(self, item: NvtxRange) -> NvtxRange:
        """The range with its times in nanoseconds since the epoch."""
        checked = self._checked(item)
        return checked._replace(start=checked.start + self._base, end=checked.end + self._base)

    def _gloo_row(self, item: NvtxRange, name: CollectiveName, steps: Steps) -> CollectiveRow:
        return CollectiveRow(
            item.start,
            item.end,
            op_of(name.op),
            name.group,
            name.payload_bytes,
            name.sequence,
            _NO_LANE,
            name.peer,
            direction_of(name.op),
            int(steps_at(np.array([item.start]), steps)[0]),
        )

    @cached_property
    def _base(self) -> int:
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
        if self._database.has(_KERNEL, "shortName"):
            return "shortName"
        return "demangledName"

    @property
    def _full_name_column(self) -> str:
        """A short name lacks the namespaces that tell whose kernel it is."""
        if not self._database.has(_KERNEL, "demangledName"):
            return self._name_column
        is_id = "typeof(demangledName) = 'integer'"
        return f"CASE WHEN {is_id} THEN demangledName ELSE {self._name_column} END"

    @cached_property
    def _communicating(self) -> list[int]:
        """Ids of the names of kernels that communicate."""
        query = f"SELECT DISTINCT {self._full_name_column} FROM {_KERNEL}"
        used = {value for (value,) in self._database.rows(query) if isinstance(value, int)}
        names = self._database.strings(sorted(used)) | self._names
        return [number for number, name in names.items() if communicates(name)]

    @cached_property
    def _names(self) -> dict[int, str]:
        """Names of kernels and of calls of the CUDA runtime, by their ids."""
        queries = [f"SELECT DISTINCT {self._name_column} FROM {_KERNEL}"]
        if self._database.has(_RUNTIME, "nameId"):
            queries.append(f"SELECT DISTINCT nameId FROM {_RUNTIME}")
        values = {value for query in queries for (value,) in self._database.rows(query)}
        return self._database.strings(sorted(value for value in values if isinstance(value, int)))

    def _kernels(self, pid: int, numbers: dict[int, int]) -> tuple[Spans, NDArray[np.int64]]:
        """Compute, and NCCL's kernels as rows of start, end, stream, launch and name."""
        table = self._database.integers(
            f"SELECT start, end, streamId, COALESCE(correlationId, 0), {self._name_column}, "
            f"{self._full_name_column} FROM {_KERNEL} WHERE globalPid = ?",
            (pid,),
            6,
        )
        is_communication = np.isin(table[:, 4:], self._communicating).any(axis=1)
        table = table[:, :5]
        communication = table[is_communication]
        communication[:, :2] += self._base
        table = table[~is_communication]
        return spans_of(
            table, self._base, SpanKind.COMPUTE, renumber(table[:, 4], numbers)
        ), communication

    def _copies(self, pid: int, name: int) -> Iterator[Spans]:
        if self._database.has(_MEMCPY, "globalPid", "correlationId"):
            memory = "-1, -1"
            if self._database.has(_MEMCPY, "srcKind", "dstKind"):
                memory = "COALESCE(srcKind, -1), COALESCE(dstKind, -1)"
            table = self._copy_table(pid, _MEMCPY, f"copyKind, {memory}")
            yield copy_spans(table, self._base, name, copy_details(table[:, 5:]))
        if self._database.has(_MEMSET, "globalPid", "correlationId"):
            table = self._copy_table(pid, _MEMSET, "0, 0, 0")
            yield copy_spans(
                table, self._base, name, np.full(len(table), SpanCopyKind.FILL, dtype=np.int8)
            )

    def _copy_table(self, pid: int, source: str, columns: str) -> NDArray[np.int64]:
        size = "COALESCE(bytes, -1)" if self._database.has(source, "bytes") else "-1"
        columns = f"start, end, streamId, COALESCE(correlationId, 0), {size}, {columns}"
        return self._database.integers(
            f"SELECT {columns} FROM {source} WHERE globalPid = ?", (pid,), 8
        )

    def _calls(self, pid: int, numbers: dict[int, int]) -> Iterator[Spans]:
        """Calls of the CUDA runtime that launch work or wait for it."""
        if not self._database.has(_RUNTIME, "globalTid", "correlationId", "nameId"):
            return
        for kind, pattern in ((SpanKind.LAUNCH, _LAUNCH), (SpanKind.HOST_SYNC, _HOST_WAIT)):
            wanted = [identifier for identifier, name in self._names.items() if pattern.match(name)]
            if not wanted:
                continue
            marks = ", ".join("?" for _ in wanted)
            table = self._database.integers(
                f"SELECT start, end, globalTid, COALESCE(correlationId, 0), nameId FROM {_RUNTIME} "
                f"WHERE globalTid >= ? AND globalTid < ? AND nameId IN ({marks})",
                (pid, pid + PID_UNIT, *wanted),
                5,
            )
            yield spans_of(table, self._base, kind, renumber(table[:, 4], numbers))

    def _steps(self, pid: int) -> Steps:
        return make_steps(
            StepRow(self._base + item.start, self._base + item.end, int(match[1]))
            for item in map(self._checked, self._nvtx.ranges(pid, _STEP_PATTERNS))
            if (match := _STEP.fullmatch(item.text)) is not None
        )

    def _waits(self, pid: int) -> list[NvtxRange]:
        """Ranges around the data loader's calls."""
        return [self._checked(item) for item in self._nvtx.ranges(pid, _WAIT_PATTERNS)]

    def _checked(self, item: NvtxRange) -> NvtxRange:
        """The range, limited to the 62 bits that a time in a recording may have: times beyond are
        refused later."""
        return item._replace(
            start=max(-MAX_NS, min(item.start, MAX_NS)), end=max(-MAX_NS, min(item.end, MAX_NS))
        )


def _listed(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:_MAX_LISTED])
    if len(texts) > _MAX_LISTED:
        return f"{shown} and {len(texts) - _MAX_LISTED:,} more"
    return shown
