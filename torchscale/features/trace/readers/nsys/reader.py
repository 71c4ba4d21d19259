"""Ranks from exports: a process that ran kernels is a rank; where none did, a process that marked
itself as one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from torchscale.catalog.communication import is_nccl_kernel, op_of
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
from torchscale.features.trace.readers.nsys.columns import ranges_as_spans
from torchscale.features.trace.readers.nsys.communicators import (
    Communicators,
    ExportedRank,
    NcclSpan,
)
from torchscale.features.trace.readers.nsys.cuda_tables import KERNELS, CudaTables
from torchscale.features.trace.readers.nsys.database import Database
from torchscale.features.trace.readers.nsys.export_file import open_database
from torchscale.features.trace.readers.nsys.launches import Launches, copy_collectives, steps_at
from torchscale.features.trace.readers.nsys.nvtx import NvtxEvents, NvtxRange
from torchscale.features.trace.readers.nsys.processes import ExportProcesses, ProcessIdentity
from torchscale.features.trace.readers.soundness import MAX_NS
from torchscale.features.trace.span import RankTrace, SpanKind, Steps
from torchscale.schema.profiles.nvtx_names import (
    COLLECTION,
    COLLECTIVE_PREFIX,
    COMPUTE_PHASES,
    DATA_WAIT,
    CollectiveName,
)

_STEP = re.compile(
    r"(?:torchscale\.)?(?:ProfilerStep|step|iteration|iter)[ _:#]*(\d{1,15})(?:, "
    r"(?:seq|op_id|sizes)\b.*)?",
    re.IGNORECASE | re.ASCII | re.DOTALL,
)
"""Names of steps, with what torch.autograd.profiler.emit_nvtx adds to a name."""
_STEP_PATTERNS = ("%step%", "iter%")
_WAIT_PATTERNS = ("enumerate(DataLoader)%", DATA_WAIT)
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
        self._database, self._path = database, path
        self._cuda, self._nvtx = CudaTables(database), NvtxEvents(database, path)
        self._processes = ExportProcesses(database, self._nvtx, path)

    def processes(self) -> tuple[list[ExportedRank], list[str]]:
        """The ranks, and notes on who they are.

        Raises:
            TraceError: there are none.
        """
        marked = self._processes.marked()
        # An export that is not lazy has empty tables.
        if self._database.has(KERNELS) and any(
            True for _ in self._database.rows(f"SELECT 1 FROM {KERNELS} LIMIT 1")
        ):
            identities, notes = self._processes.device_ranks(marked)
            return [self._device_rank(identity) for identity in identities], notes
        if not marked:
            raise TraceError(
                f"{self._path}: no CUDA kernels were recorded{self._processes.recorder_message()}",
                hint="trace CUDA (`nsys profile -t cuda,nvtx`), and let the program end before "
                "nsys does; CPU ranks of your own programs are recorded by torch.profiler (--tool "
                "kineto)",
            )
        return [
            self._host_rank(identity)
            for identity in sorted(marked.values(), key=lambda one: one.rank)
        ], []

    def _device_rank(self, identity: ProcessIdentity) -> ExportedRank:
        """A rank by its kernels."""
        pid, names = identity.pid, self._cuda.names
        numbers = {identifier: index for index, identifier in enumerate(names)}
        calls = join_spans(list(self._cuda.calls(pid, numbers)))
        steps = self._steps(pid)
        launches = Launches(calls, steps)
        nccl_calls = nccl.NcclCalls(
            [self._on_clock(item) for item in self._nvtx.ranges(pid, nccl.RANGES)]
        )
        compute, kernels = self._cuda.kernels(pid, numbers)
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
        copies = list(self._cuda.copies(pid, len(names)))
        if nccl_calls:
            copies, by_copies = copy_collectives(copies, launches, nccl_calls, communication)
            communication += by_copies
        waits = ranges_as_spans(self._waits(pid), self._cuda.base, SpanKind.INPUT, len(names) + 1)
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

    def _host_rank(self, identity: ProcessIdentity) -> ExportedRank:
        """A CPU rank, by what the worker marks: phases of its steps, gloo's collectives, waits for
        data."""
        pid, names = identity.pid, NameTable()
        parts = [
            ranges_as_spans(
                self._waits(pid), self._cuda.base, SpanKind.INPUT, names.number("data loader")
            )
        ]
        for phase in COMPUTE_PHASES:
            number = names.number(phase.removeprefix("torchscale."))
            parts.append(
                ranges_as_spans(
                    self._nvtx.ranges(pid, [phase]), self._cuda.base, SpanKind.OPERATOR, number
                )
            )
        collections = self._nvtx.ranges(pid, [COLLECTION])
        parts.append(
            ranges_as_spans(
                collections, self._cuda.base, SpanKind.PAUSE, names.number("garbage collection")
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
        return checked._replace(
            start=checked.start + self._cuda.base, end=checked.end + self._cuda.base
        )

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

    def _steps(self, pid: int) -> Steps:
        return make_steps(
            StepRow(self._cuda.base + item.start, self._cuda.base + item.end, int(match[1]))
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
