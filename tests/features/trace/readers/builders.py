"""Recordings as the two profilers write them, made to measure: Kineto JSON and nsys SQLite."""

from __future__ import annotations

import json
import random
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from torchscale.features.trace.readers.kineto.reader import read_kineto
from torchscale.features.trace.span import RankTrace

SHARED = Path(__file__).resolve().parents[4] / "shared"
PID_UNIT = 0x1000000
BASE_NS = 1_700_000_000_000_000_000


def kernel(
    name: str, start: float, length: float, stream: int = 7, link: int = 0, **args: Any
) -> dict[str, Any]:
    """A kernel; times in microseconds."""
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "pid": 0,
        "tid": stream,
        "ts": start,
        "dur": length,
        "args": {"device": 0, "stream": stream, "correlation": link, "grid": [1, 1, 1], **args},
    }


def host(
    category: str, name: str, start: float, length: float, thread: int = 1, **args: Any
) -> dict[str, Any]:
    """Something on the host."""
    return {
        "ph": "X",
        "cat": category,
        "name": name,
        "pid": 10,
        "tid": thread,
        "ts": start,
        "dur": length,
        "args": args,
    }


def step(number: int, start: float, length: float) -> dict[str, Any]:
    """A step of the profiler."""
    return host("user_annotation", f"ProfilerStep#{number}", start, length)


def kineto(
    events: Sequence[Mapping[str, Any]],
    rank: int | None = 0,
    world_size: int = 2,
    backend: str = "nccl",
    **header: Any,
) -> str:
    """A trace as torch.profiler writes it."""
    info = (
        {}
        if rank is None
        else {"distributedInfo": {"backend": backend, "rank": rank, "world_size": world_size}}
    )
    content = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "GPU"}],
        **info,
        "host_name": "node-1",
    }
    content |= {
        "baseTimeNanoseconds": BASE_NS,
        **header,
        "traceEvents": list(events),
        "traceName": "x.json",
    }
    return json.dumps(content, indent=2)


NSYS_2022 = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "EXPORT_META_DATA": "name TEXT NOT NULL, value TEXT",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT",
    "CUPTI_ACTIVITY_KIND_KERNEL": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER "
    "NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, "
    "globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, gridX INTEGER",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass "
    "INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, "
    "returnValue INTEGER NOT NULL",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER "
    "NOT NULL, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER "
    "NOT NULL, copyKind INTEGER NOT NULL, srcKind INTEGER, dstKind INTEGER",
}
"""Of the columns of an export of 2022, those that matter, and one that does not."""

NSYS_2026 = {
    **{table: columns for table, columns in NSYS_2022.items() if table != "EXPORT_META_DATA"},
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "META_DATA_CAPTURE": "name TEXT NOT NULL, value TEXT",
    "TARGET_INFO_SYSTEM_ENV": "globalVid INTEGER, devStateName TEXT NOT NULL, name TEXT NOT NULL, "
    "nameEnum INTEGER NOT NULL, value TEXT NOT NULL",
    "DIAGNOSTIC_EVENT": "timestamp INTEGER NOT NULL, timestampType INTEGER NOT NULL, source "
    "INTEGER NOT NULL, severity INTEGER NOT NULL, text TEXT NOT NULL, globalPid INTEGER",
    "NVTX_EVENTS": "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, "
    "globalTid INTEGER, textId INTEGER, domainId INTEGER, binaryData BLOB",
    "NVTX_PAYLOAD_SCHEMAS": "domainId INTEGER, schemaId INTEGER, name TEXT, type INTEGER, "
    "payloadSize INTEGER",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": "domainId INTEGER NOT NULL, schemaId INTEGER NOT NULL, idx "
    "INTEGER NOT NULL, flags INTEGER, type INTEGER, name TEXT, description TEXT, offset INTEGER",
    "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
}
NCCL_DOMAIN, NCCL_SCHEMA = 1, 16777225
"""Of the payload that NCCL attaches to its ranges: communicator, bytes, partner."""
_NCCL_ENTRIES = (
    (18, "NCCL communicator ID", None),
    (22, "Message size [bytes]", 8),
    (5, "Peer rank", 16),
)
"""Type, name and place, as real exports have them: the place of the first is not exported."""


@dataclass
class NsysExport:
    """Rows of an export, by table; ``write`` makes the database."""

    tables: Mapping[str, str] = field(default_factory=lambda: NSYS_2026)
    rows: dict[str, list[dict[str, object]]] = field(default_factory=dict)
    names: dict[str, int] = field(default_factory=dict)

    def name(self, text: str) -> int:
        """Its id in StringIds."""
        return self.names.setdefault(text, len(self.names) + 1)

    def add(self, table: str, **values: object) -> None:
        """A row; columns that the table lacks are left out, and those that it demands are 0."""
        self.rows.setdefault(table, []).append(values)

    def kernel(self, pid: int, name: str, start: int, end: int, link: int = 0) -> None:
        """A kernel of a process; nanoseconds."""
        number = self.name(name)
        self.add(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            start=start,
            end=end,
            streamId=7,
            correlationId=link,
            globalPid=pid * PID_UNIT,
            demangledName=number,
            shortName=number,
        )

    def call(self, pid: int, name: str, start: int, end: int, link: int = 0) -> None:
        """A call of the CUDA runtime."""
        self.add(
            "CUPTI_ACTIVITY_KIND_RUNTIME",
            start=start,
            end=end,
            globalTid=pid * PID_UNIT + pid,
            correlationId=link,
            nameId=self.name(name),
        )

    def range(
        self, pid: int, text: str, start: int, end: int | None, by_id: bool = False, kind: int = 59
    ) -> None:
        """An NVTX range, its text in the row or by id."""
        where: dict[str, object] = {"textId": self.name(text)} if by_id else {"text": text}
        self.add(
            "NVTX_EVENTS",
            start=start,
            end=end,
            eventType=kind,
            globalTid=pid * PID_UNIT + pid,
            **where,
        )

    def mark(self, pid: int, text: str, at: int) -> None:
        """A moment."""
        self.range(pid, text, at, None, kind=34)

    def nccl(
        self,
        pid: int,
        text: str,
        start: int,
        end: int,
        *,
        communicator: int | None = None,
        size: int = 0,
        peer: int = 0,
    ) -> None:
        """A range of NCCL, with a payload if there is a communicator."""
        self.range(pid, text, start, end, by_id=True)
        if communicator is None:
            return
        blob = struct.pack("<QQii", communicator, size, peer, 0)
        header = struct.pack("<IIIIQQ", NCCL_DOMAIN, 0, NCCL_SCHEMA, 0, len(blob), 32 + len(blob))
        self.rows["NVTX_EVENTS"][-1] |= {"domainId": NCCL_DOMAIN, "binaryData": header + blob}
        if "NVTX_PAYLOAD_SCHEMA_ENTRIES" not in self.rows:
            for place, (kind, name, offset) in enumerate(_NCCL_ENTRIES):
                self.add(
                    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
                    domainId=NCCL_DOMAIN, schemaId=NCCL_SCHEMA, idx=place, type=kind, name=name, offset=offset,
                )  # fmt: skip

    def copy(
        self, pid: int, start: int, end: int, size: int, kinds: tuple[int, int, int], link: int = 0
    ) -> None:
        """A copy by the device; ``kinds``: of the copy, of the memory read and of the memory
        written."""
        self.add(
            "CUPTI_ACTIVITY_KIND_MEMCPY",
            start=start,
            end=end,
            streamId=13,
            correlationId=link,
            globalPid=pid * PID_UNIT,
            bytes=size,
            copyKind=kinds[0],
            srcKind=kinds[1],
            dstKind=kinds[2],
        )

    def write(self, path: Path, *, shuffle: bool = False, without: Sequence[str] = ()) -> Path:
        """The database; tables without rows are not made, as lazy exports leave them out."""
        meta = "META_DATA_EXPORT" if "META_DATA_EXPORT" in self.tables else "EXPORT_META_DATA"
        if not self.rows.get(meta):
            self.add(meta, name="EXPORT_SCHEMA_VERSION", value="3.25.0")
        self.rows["StringIds"] = [
            {"id": number, "value": text} for text, number in self.names.items()
        ]
        with closing(sqlite3.connect(path)) as database, database:
            for table, rows in self.rows.items():
                if table in without or table not in self.tables:
                    continue
                database.execute(f"CREATE TABLE {table} ({self.tables[table]})")
                known = database.execute(f"PRAGMA table_info({table})").fetchall()
                ordered = random.Random(1).sample(rows, len(rows)) if shuffle else rows
                demanded = {column[1] for column in known if column[3]}
                names = [column[1] for column in known]
                for row in ordered:
                    values = [row.get(name, 0 if name in demanded else None) for name in names]
                    database.execute(
                        f"INSERT INTO {table} VALUES ({','.join('?' * len(names))})", values
                    )
        database.close()
        return path


def read_rank(file: BinaryIO, source: str, *, with_shapes: bool = False) -> RankTrace:
    """The one rank of a trace."""
    (rank,) = read_kineto(file, source, with_shapes=with_shapes)
    return rank


def two_ranks(
    tables: Mapping[str, str] = NSYS_2026, steps: int = 24, *, launched: bool = False
) -> NsysExport:
    """Two processes, each step 100 µs of compute, then an all-reduce of 20 µs that process 2 enters
    10 µs late; ``launched``: with the launch of each all-reduce."""
    export = NsysExport(tables)
    link = 0
    for number in range(steps):
        origin = number * 200_000
        for pid, late in ((1, 0), (2, 10_000)):
            link += 1
            export.call(pid, "cudaLaunchKernel_v7000", origin, origin + 5_000, link)
            export.kernel(pid, "gemm", origin + 10_000, origin + 110_000 + late, link)
            called = 1_000_000 + link if launched else 0
            if launched:
                export.call(
                    pid, "cudaLaunchKernelExC_v11060", origin + 6_000, origin + 9_000, called
                )
            reduced = "ncclDevKernel_AllReduce_Sum_f32"
            export.kernel(pid, reduced, origin + 110_000 + late, origin + 140_000, called)
            export.range(
                pid, f"torchscale.step {number}", origin, origin + 200_000, by_id=number % 2 == 0
            )
    return export
